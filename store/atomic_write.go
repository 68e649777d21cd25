package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tempPrefix marks files that are still being written. Lock removes those that a crash left behind.
const tempPrefix = ".fedmesh-tmp-"

// WriteFileDurably replaces path by data, atomically and durably: after a crash the file holds either the old content
// or the new, never a mix. It writes a temporary file in the same folder, fsyncs it, renames it over path and fsyncs
// the folder. The mode is perm less the umask, as with os.WriteFileDurably. On error nothing was changed and nothing is
// left over, except where the error says that only the last step, the fsync of the folder, failed.
func (d Disk) WriteFileDurably(path string, data []byte, perm fs.FileMode) error {
	return d.replaceFile(path, [][]byte{data}, perm, true)
}

// replaceFile is WriteFileDurably of pieces, one behind the other. Where it is not to be durable it syncs nothing:
// after a power cut the file may be torn, or gone.
func (d Disk) replaceFile(path string, pieces [][]byte, perm fs.FileMode, durable bool) error {
	dir := filepath.Dir(path)
	temp, err := d.writeTempFile(dir, pieces, perm, durable)
	if err != nil {
		return explainFileError("write", path, err)
	}
	if err := d.Rename(temp, path); err != nil {
		return explainFileError("write", path, errors.Join(err, d.Remove(temp)))
	}
	if !durable {
		return nil
	}
	if err := d.SyncDir(dir); err != nil {
		return fmt.Errorf("store: write %s: the new content is in place, but its folder could not be fsynced, "+
			"so a power cut may bring the old content back: %w", path, err)
	}
	return nil
}

// writeTempFile writes a temporary file in dir, which is durable or not, and returns its path; on error it is gone
// again.
func (d Disk) writeTempFile(dir string, pieces [][]byte, perm fs.FileMode, durable bool) (path string, err error) {
	path = filepath.Join(dir, tempPrefix+rand.Text())
	// as os.CreateTemp does, with the umask: that would make the file 0600, and a Chmod would not heed it
	f, err := d.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return "", err
	}
	for _, p := range pieces {
		if err == nil {
			_, err = f.Write(p)
		}
	}
	if err == nil && durable {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return "", errors.Join(err, d.Remove(path))
	}
	return path, nil
}

// removeTempFiles clears what crashed calls of WriteFileDurably left in dir and below. Only safe while no one else
// writes there.
func removeTempFiles(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && path != dir {
			return fs.SkipDir // lost+found, say: what the daemon cannot list, it has not written
		}
		if err != nil {
			return err
		}
		if d.Type().IsRegular() && strings.HasPrefix(d.Name(), tempPrefix) {
			return os.Remove(path)
		}
		return nil
	})
}
