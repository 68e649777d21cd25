package store

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FS is the file system that this package requires. Its methods correspond to functions of package os, except SyncDir.
// FS has no locks; see LockStateFolder.
type FS interface {
	// OpenFile is like os.OpenFile. The umask applies to perm.
	OpenFile(path string, flag int, perm fs.FileMode) (File, error)
	Lstat(path string) (fs.FileInfo, error)
	// ReadDir returns the entries of a folder, sorted by name.
	ReadDir(dir string) ([]fs.DirEntry, error)
	Mkdir(dir string, perm fs.FileMode) error
	Rename(from, to string) error
	Remove(path string) error
	RemoveAll(path string) error
	// SyncDir makes the names of the entries in a folder durable.
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
	Sync() error // makes the content of the file durable
}

// Disk stores files on a file system.
type Disk struct{ FS }

// LocalDisk is the disk of this machine.
var LocalDisk = Disk{machineFS{}}

// machineFS is the FS of this machine.
type machineFS struct{}

// OpenFile opens a file like os.OpenFile. On error it returns a nil File and not a File that contains a nil pointer.
func (machineFS) OpenFile(path string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return machineFile{f}, nil
}

// machineFile is an open file of machineFS.
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

// MakeDir creates the folder dir durably if it does not exist. The parent must exist, because a missing state folder is
// more likely a wrong path or an unmounted volume. MakeDir fsyncs the parent even if dir exists, because another
// process may have created dir and died before its fsync.
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
