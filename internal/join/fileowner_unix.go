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

// fileOwner is to whom a device's files are given: to whom its configuration belongs, so that the service reads them.
type fileOwner struct {
	mode     fs.FileMode // of the configuration
	uid, gid int         // -1 = as they are made
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

// privateKeyMode is the mode of private keys: the group of a service reads them.
func (o fileOwner) privateKeyMode() fs.FileMode {
	if o.gid > 0 {
		return 0o640
	}
	return 0o600
}

// writeFileBesideConfig replaces a file, which has its owner from the begin.
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

// setFileOwner gives a fresh file its owner, and where there is one before it its whole mode, whatever the umask. The
// folder may be the service's, and we be root: a link in the file's place is not followed.
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
