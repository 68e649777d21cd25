//go:build unix

package join

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fedmesh/fedmesh/store"
)

// fileOwner is the owner that new files of the device get. It is the owner of the configuration file, so that the
// service can read the new files.
type fileOwner struct {
	mode     fs.FileMode // mode of the configuration
	uid, gid int         // -1 leaves the owner unchanged
}

func ownerOf(config string) fileOwner {
	info, err := os.Stat(config)
	if err != nil {
		return fileOwner{0o644, -1, -1}
	}
	o := fileOwner{info.Mode().Perm(), -1, -1}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		o.uid, o.gid = int(s.Uid), int(s.Gid)
	}
	return o
}

// privateKeyMode returns the file mode for private keys. If the device runs as a service, the group of the service may
// read the keys.
func (o fileOwner) privateKeyMode() fs.FileMode {
	if o.gid > 0 {
		return 0o640
	}
	return 0o600
}

// write replaces a file. The new file has its final owner from its creation.
func (o fileOwner) write(d store.Disk, path string, content []byte, perm fs.FileMode) error {
	fresh := path + ".new"
	if err := d.WriteFileDurably(fresh, content, perm); err != nil {
		return err
	}
	if err := o.setFileOwner(fresh, path, perm); err != nil {
		return errors.Join(err, d.Remove(fresh))
	}
	if err := d.Rename(fresh, path); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(path))
}

// setFileOwner sets the owner of the new file fresh. If the file replaces an existing file before, it also sets the
// complete mode, because the umask may have restricted the mode. It does not follow symbolic links, because root may
// write to a folder that belongs to the service.
func (o fileOwner) setFileOwner(fresh, before string, perm fs.FileMode) error {
	f, err := os.OpenFile(fresh, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := os.Lstat(before); err == nil {
		if err := f.Chmod(perm); err != nil {
			return err
		}
	}
	if o.gid < 0 {
		return nil
	}
	return f.Chown(o.uid, o.gid)
}
