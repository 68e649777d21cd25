package store

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FS is what this package needs of a file system: the calls of package os, and what makes names durable. A lock is the
// machine's alone: see Lock.
type FS interface {
	// OpenFile takes the flags of os.OpenFile. The mode is perm less the umask.
	OpenFile(path string, flag int, perm fs.FileMode) (File, error)
	Lstat(path string) (fs.FileInfo, error)
	// ReadDir returns the entries of a folder, sorted by name.
	ReadDir(dir string) ([]fs.DirEntry, error)
	Mkdir(dir string, perm fs.FileMode) error
	Rename(from, to string) error
	Remove(path string) error
	RemoveAll(path string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(dir string) error
}

// File is an open file of an FS.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	Sync() error // makes the content durable
}

// Disk keeps files on a file system.
type Disk struct{ FS }

// LocalDisk is the disk of this machine.
var LocalDisk = Disk{machineFS{}}

// machineFS is the machine's file system.
type machineFS struct{}

// OpenFile hides the nil *os.File of an error.
func (machineFS) OpenFile(path string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return machineFile{f}, nil
}

// machineFile is a file of the machine.
type machineFile struct{ *os.File }

func (machineFS) Lstat(path string) (fs.FileInfo, error)    { return os.Lstat(path) }
func (machineFS) ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }
func (machineFS) Mkdir(dir string, perm fs.FileMode) error  { return os.Mkdir(dir, perm) }
func (machineFS) Rename(from, to string) error              { return os.Rename(from, to) }
func (machineFS) Remove(path string) error                  { return os.Remove(path) }
func (machineFS) RemoveAll(path string) error               { return os.RemoveAll(path) }
func (machineFS) SyncDir(dir string) error                  { return syncDir(dir) }

// ReadFile returns the content of a file.
func (d Disk) ReadFile(path string) ([]byte, error) {
	f, err := d.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	if info, err := f.Stat(); err == nil {
		content.Grow(int(info.Size()) + bytes.MinRead)
	}
	_, err = content.ReadFrom(f)
	return content.Bytes(), errors.Join(err, f.Close())
}

// MakeDir creates the last element of dir, durably, if it is missing. Its parent must exist: a missing state folder
// is more likely a wrong path or a volume that is not mounted than a wish to start from nothing. A folder that is there
// may be one that a process has made which died before its fsync: it is made durable, too.
func (d Disk) MakeDir(dir string) error {
	err := d.Mkdir(dir, 0o700)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = d.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		return explainFileError("create folder", dir, err)
	}
	return nil
}
