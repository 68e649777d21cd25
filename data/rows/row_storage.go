package rows

import (
	"cmp"
	"os"

	"github.com/fedmesh/fedmesh/data"
)

// maxRowMemory is how much memory the rows of a task may take as they were made, in bytes; more go to a file. The
// copy in the task's terms takes as much memory again.
const maxRowMemory = 8 << 20

// Storage is where rows may be.
type Storage struct {
	Folder      string // of the files; empty = the folder of temporary files
	MemoryBytes int    // the maximum number of bytes in memory
}

// StorageOf is where the rows of a section may be.
func StorageOf(c *data.Config) Storage {
	return Storage{cmp.Or(c.Folder, os.TempDir()), maxRowMemory}
}
