package join

import (
	"io/fs"

	"github.com/fedmesh/fedmesh/store"
)

// fileOwner holds the file mode only. On Windows, new files inherit their permissions from the folder.
type fileOwner struct{ mode fs.FileMode }

func ownerOf(string) fileOwner { return fileOwner{0o644} }

func (fileOwner) privateKeyMode() fs.FileMode { return 0o600 }

func (fileOwner) write(d store.Disk, path string, content []byte, perm fs.FileMode) error {
	return d.WriteFileDurably(path, content, perm)
}
