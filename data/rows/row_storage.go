package rows

import (
	"cmp"
	"os"

	"github.com/fedmesh/fedmesh/data"
)

// maxRowMemory is how much memory the rows of a task may take as they were made, in bytes; more go to a file. The
// copy in the task's terms takes as much memory again.
const maxRowMemory = 8 << 20

// StorageSettings is where rows may be.
type StorageSettings struct {
	Folder         string // of the files; empty = the folder of temporary files
	MaxMemoryBytes int    // the maximum number of bytes in memory
}

// StorageSettingsFromConfig is where the rows of a section may be.
func StorageSettingsFromConfig(c *data.Config) StorageSettings {
	return StorageSettings{cmp.Or(c.RowFileFolder, os.TempDir()), maxRowMemory}
}
