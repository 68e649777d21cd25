package world

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"syscall"
)

// file is an open file of a simulated disk. file implements store.File.
type file struct {
	h     handle
	name  string
	inode *inode
	at    int64 // offset of the next Read or Write
}

// Name implements store.File.
func (f *file) Name() string { return f.name }

// Read implements store.File.
func (f *file) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.at)
	if f.at += int64(n); n > 0 {
		err = nil
	}
	return n, err
}

// ReadAt implements store.File.
func (f *file) ReadAt(p []byte, at int64) (int, error) {
	f.h.life.alive()
	if at >= int64(len(f.inode.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.inode.data[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Write implements store.File.
func (f *file) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.at)
	f.at += int64(n)
	return n, err
}

// WriteAt implements store.File. On a full disk it writes only a part of p.
func (f *file) WriteAt(p []byte, at int64) (int, error) {
	f.h.life.alive()
	var err error
	if f.h.full && at+int64(len(p)) > int64(len(f.inode.data)) {
		p = p[:f.h.w.rng.IntN(len(p)+1)]
		err = &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	if f.h.op("write", f.name, 0) {
		f.own(at + int64(len(p)))
		copy(f.inode.data[at:], p)
	}
	return len(p), err
}

// own copies the content if it is shared, so that it can be modified, and extends it to at least size bytes.
func (f *file) own(size int64) {
	n := f.inode
	if n.shared {
		n.data, n.shared = bytes.Clone(n.data), false
	}
	if more := size - int64(len(n.data)); more > 0 {
		n.data = append(n.data, make([]byte, more)...)
	}
}

// Truncate implements store.File.
func (f *file) Truncate(size int64) error {
	f.h.life.alive()
	if size == int64(len(f.inode.data)) {
		return nil
	}
	if f.h.op("truncate", f.name, 0) {
		f.own(size)
		f.inode.data = f.inode.data[:size]
	}
	return nil
}

// Sync implements store.File.
func (f *file) Sync() error {
	f.h.life.alive()
	late, done := f.h.isLate != nil && f.h.isLate(f.name), f.h.op("sync", f.name, f.h.syncTime())
	if done && !late {
		f.inode.sync()
	}
	if _, is := isSlot(f.name); is && f.h.wrote != nil {
		f.h.wrote(f.name)
	}
	switch {
	case late:
		f.h.late = f.inode
	case f.h.late != nil:
		f.h.late.sync()
		f.h.late = nil
	}
	return nil
}

func (n *inode) sync() { n.durableData, n.shared = n.data, true }

// Stat implements store.File.
func (f *file) Stat() (fs.FileInfo, error) { return infoOf(path.Base(f.name), f.inode), nil }

// Close implements store.File.
func (f *file) Close() error { return nil }
