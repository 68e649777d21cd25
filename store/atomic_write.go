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

// tempPrefix is the name prefix of files that are still being written. LockStateFolder removes such files if a crash
// left them behind.
const tempPrefix = ".fedmesh-tmp-"

// WriteFileDurably replaces the file at path with data, atomically and durably. After a crash the file has either its
// old content or the new content, never a mix. It writes a temporary file in the same folder, fsyncs it, renames it
// over path and fsyncs the folder. The umask applies to perm, as in os.WriteFile. On error the file is unchanged and no
// temporary file is left, unless the error reports that only the final fsync of the folder failed.
func (d Disk) WriteFileDurably(path string, data []byte, perm fs.FileMode) error {
	return d.replaceFile(path, [][]byte{data}, perm, true)
}

// replaceFile is like WriteFileDurably, for data in several pieces. If durable is false, it does not fsync, so that
// after a power cut the file may be torn or missing.
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
			"so a power cut may restore the old content: %w", path, err)
	}
	return nil
}

// writeTempFile writes a temporary file in dir and returns its path. It fsyncs the file if durable is true. On error it
// removes the file.
func (d Disk) writeTempFile(dir string, pieces [][]byte, perm fs.FileMode, durable bool) (path string, err error) {
	path = filepath.Join(dir, tempPrefix+rand.Text())
	// os.CreateTemp is not used, because it creates files with mode 0600, and a later Chmod would ignore the umask.
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

// removeTempFiles removes the temporary files that crashed calls of WriteFileDurably left in dir and its subfolders. No
// other process may write to dir.
func removeTempFiles(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && path != dir {
			// Skip folders such as lost+found. The daemon cannot have written to a folder that it cannot list.
			return fs.SkipDir
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
