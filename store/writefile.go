package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tempPrefix marks files that are still being written. Lock removes those that a crash left behind.
const tempPrefix = ".fedmesh-tmp-"

// WriteFile replaces path by data, atomically and durably: after a crash the file holds either the old content or
// the new, never a mix. It writes a temporary file in the same folder, fsyncs it, renames it over path and fsyncs
// the folder. The mode is perm less the umask, as with os.WriteFile. On error nothing was changed and nothing is left
// over, except where the error says that only the last step, the fsync of the folder, failed.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	return writeFile(machineDisk{}, path, data, perm)
}

func writeFile(on disk, path string, data []byte, perm fs.FileMode) error {
	dir := filepath.Dir(path)
	temp, err := writeTemp(on, dir, data, perm)
	if err != nil {
		return explain("write", path, err)
	}
	if err := on.rename(temp, path); err != nil {
		return explain("write", path, errors.Join(err, on.remove(temp)))
	}
	if err := on.syncDir(dir); err != nil {
		return fmt.Errorf("store: write %s: the new content is in place, but its folder could not be fsynced, "+
			"so a power cut may bring the old content back: %w", path, err)
	}
	return nil
}

// writeTemp writes and fsyncs a temporary file in dir and returns its path; on error it is gone again.
func writeTemp(on disk, dir string, data []byte, perm fs.FileMode) (path string, err error) {
	path = filepath.Join(dir, tempPrefix+rand.Text())
	f, err := on.create(path, perm)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return "", errors.Join(err, on.remove(path))
	}
	return path, nil
}

// disk is what WriteFile needs of a file system; a test has one that loses power.
type disk interface {
	create(path string, perm fs.FileMode) (newFile, error)
	rename(from, to string) error
	remove(path string) error
	syncDir(dir string) error
}

// newFile is a file that is being written.
type newFile interface {
	io.WriteCloser
	Sync() error
}

// machineDisk is the machine's file system.
type machineDisk struct{}

// create does what os.CreateTemp does, with the umask: that would make the file 0600, and a Chmod would not heed it.
func (machineDisk) create(path string, perm fs.FileMode) (newFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
}

func (machineDisk) rename(from, to string) error { return os.Rename(from, to) }
func (machineDisk) remove(path string) error     { return os.Remove(path) }
func (machineDisk) syncDir(dir string) error     { return syncDir(dir) }

// removeTemps clears what crashed calls of WriteFile left in dir and below. Only safe while no one else writes there.
func removeTemps(dir string) error {
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

// makeDir creates the last element of dir, durably, if it is missing. Its parent must exist: a missing state folder
// is more likely a wrong path or a volume that is not mounted than a wish to start from nothing.
func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = syncDir(filepath.Dir(dir))
	}
	if err != nil {
		return explain("create folder", dir, err)
	}
	return nil
}
