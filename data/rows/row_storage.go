package rows

import (
	"cmp"
	"os"

	"github.com/fedmesh/fedmesh/data"
)

// maxRowMemory is the maximum size in bytes of the raw rows of a task in memory. Larger numbers of rows are moved to a
// file. The prepared copy takes the same amount of memory again.
const maxRowMemory = 8 << 20

// StorageSettings defines where rows are stored.
type StorageSettings struct {
	Folder         string // folder of row files; empty means the folder for temporary files
	MaxMemoryBytes int    // maximum number of bytes in memory
}

// StorageSettingsFromConfig returns the storage settings of a configuration section.
func StorageSettingsFromConfig(c *data.Config) StorageSettings {
	return StorageSettings{cmp.Or(c.RowFileFolder, os.TempDir()), maxRowMemory}
}
