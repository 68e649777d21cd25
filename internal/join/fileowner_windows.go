package join

import (
	"io/fs"

	"github.com/fedmesh/fedmesh/store"
)

// owner is to whom a device's files are given; on Windows the folder decides.
type owner struct{ mode fs.FileMode }

func ownerOf(string) owner { return owner{0o644} }

func (owner) secret() fs.FileMode { return 0o600 }

func (owner) write(d store.Disk, path string, content []byte, perm fs.FileMode) error {
	return d.WriteFile(path, content, perm)
}
