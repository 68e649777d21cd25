package join

import (
	"io/fs"

	"github.com/fedmesh/fedmesh/store"
)

// fileOwner is the owner of a device's files. On Windows the folder determines it.
type fileOwner struct{ mode fs.FileMode }

func ownerOf(string) fileOwner { return fileOwner{0o644} }

// privateKeyMode returns the mode of private keys.
func (fileOwner) privateKeyMode() fs.FileMode { return 0o600 }

func (fileOwner) write(d store.Disk, path string, content []byte, perm fs.FileMode) error {
	return d.WriteFileDurably(path, content, perm)
}
