package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"testing"
)

// cuttableDisk is a file system in memory whose power fails at the n-th operation. It implements the operations of
// WriteFileDurably and RecordSlots.
type cuttableDisk struct {
	FS
	left           int               // remaining operations before the power cut
	names, durable map[string]*inode // current files, and files at the last fsync of the folder
}

// inode is the content of a file: data is the current content, and safe is the content at the last fsync of the file.
type inode struct {
	File
	disk       *cuttableDisk
	data, safe []byte
}

var errPower = errors.New("the power is off")

func (d *cuttableDisk) on() error {
	if d.left--; d.left < 0 {
		return errPower
	}
	return nil
}

func (d *cuttableDisk) OpenFile(path string, flag int, _ fs.FileMode) (File, error) {
	i, found := d.names[path]
	if !found && flag&os.O_CREATE == 0 {
		return nil, fs.ErrNotExist
	}
	if err := d.on(); err != nil || found {
		return i, err
	}
	d.names[path] = &inode{disk: d}
	return d.names[path], nil
}

func (d *cuttableDisk) Rename(from, to string) error {
	if err := d.on(); err != nil {
		return err
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
	return nil
}

func (d *cuttableDisk) Remove(path string) error {
	if err := d.on(); err != nil {
		return err
	}
	if d.names[path] == nil {
		return fs.ErrNotExist
	}
	delete(d.names, path)
	return nil
}

func (d *cuttableDisk) SyncDir(string) error {
	if err := d.on(); err != nil {
		return err
	}
	d.durable = maps.Clone(d.names)
	return nil
}

func (i *inode) Write(p []byte) (int, error) {
	if err := i.disk.on(); err != nil {
		return 0, err
	}
	i.data = append(i.data, p...)
	return len(p), nil
}

func (i *inode) Sync() error {
	if err := i.disk.on(); err != nil {
		return err
	}
	i.safe = bytes.Clone(i.data)
	return nil
}

func (i *inode) Close() error { return i.disk.on() }

// after returns a content that the file may have after the power cut. The set of files is either the current one or the
// set at the last fsync of the folder. Each sector that was written after the file's last fsync may be lost.
func (d *cuttableDisk) after(path string, rnd *rand.Rand) []byte {
	const sector = 8
	names := d.durable
	if rnd.IntN(2) == 0 {
		names = d.names
	}
	i := names[path]
	if i == nil {
		return nil
	}
	content := bytes.Clone(i.safe)
	for at := len(content); at < len(i.data); at += sector {
		piece := i.data[at:min(at+sector, len(i.data))]
		if rnd.IntN(2) == 0 {
			piece = make([]byte, len(piece))
		}
		content = append(content, piece...)
	}
	if len(i.safe) < len(content) && rnd.IntN(2) == 0 {
		content = content[:len(i.safe)+rnd.IntN(len(content)-len(i.safe))]
	}
	return content
}

// TestWriteFilePowerCuts cuts the power at each operation of a write. The file must have its old or its new content,
// and the new content once WriteFileDurably has returned.
func TestWriteFilePowerCuts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	before, now := bytes.Repeat([]byte("old "), 20), bytes.Repeat([]byte("content "), 30)
	seen := map[string]bool{}
	for left := range 10 {
		for range 50 {
			d := &cuttableDisk{left: left, names: map[string]*inode{}}
			d.names["state/run"] = &inode{disk: d, data: before, safe: before}
			d.durable = maps.Clone(d.names)
			err := Disk{d}.WriteFileDurably("state/run", now, 0o600)
			got := d.after("state/run", rnd)
			if isNew := bytes.Equal(got, now); !isNew && !bytes.Equal(got, before) || err == nil && !isNew {
				t.Fatalf("the power goes after %d operations, WriteFile says %v: %q", left, err, got)
			}
			seen[fmt.Sprint(err == nil, bytes.Equal(got, now))] = true
		}
	}
	if !seen["true true"] || !seen["false false"] || !seen["false true"] {
		t.Errorf("not all endings were seen: %v", seen)
	}
}
