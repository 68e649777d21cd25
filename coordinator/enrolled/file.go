package enrolled

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/fedmesh/fedmesh/store"
)

// ErrStale says that there is no file, or that it was made from another text, or is damaged: make it again.
var ErrStale = errors.New("the list of agents must be made again")

// Stamp tells one content of a text file from another.
type Stamp struct{ Size, Written, Changed int64 }

// StampOf returns the stamp of a text.
func StampOf(info fs.FileInfo) Stamp {
	return Stamp{Size: info.Size(), Written: info.ModTime().UnixNano(), Changed: changed(info)}
}

// Old reports whether a later change of the text has another stamp: file systems count time in steps of up to 2 s.
func (s Stamp) Old(now time.Time) bool {
	return now.UnixNano()-max(s.Written, s.Changed) > int64(2*time.Second)
}

// Count returns how many agents a file has. The error is ErrStale unless it was made from this text; its records are
// not read.
func Count(d store.Disk, path string, text Stamp) (int, error) {
	f, n, _, err := openHead(d, path, text)
	if err != nil {
		return 0, err
	}
	return n, f.Close()
}

// Open opens a file. The error wraps ErrStale unless it was made from this text, and is whole.
func Open(d store.Disk, path string, text Stamp) (*List, error) {
	f, n, sum, err := openHead(d, path, text)
	if err != nil {
		return nil, err
	}
	l, is, err := index(f, n)
	if err != nil || is != sum {
		return nil, errors.Join(ErrStale, err, f.Close())
	}
	return l, nil
}

// openHead opens a file and reads its head.
func openHead(d store.Disk, path string, text Stamp) (f store.File, records int, sum uint32, err error) {
	f, err = d.OpenFile(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, 0, ErrStale
	}
	if err != nil {
		return nil, 0, 0, err
	}
	var head [headSize]byte
	info, err := f.Stat()
	if err == nil {
		_, err = io.ReadFull(f, head[:])
	}
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(head[at:])) }
	made := Stamp{Size: number(8), Written: number(16), Changed: number(24)}
	records = int(binary.LittleEndian.Uint32(head[len(magic):]))
	if err != nil || string(head[:len(magic)]) != magic || made != text ||
		info.Size() != int64(headSize)+int64(records)*recordSize {
		return nil, 0, 0, errors.Join(ErrStale, err, f.Close())
	}
	return f, records, binary.LittleEndian.Uint32(head[headSize-4:]), nil
}
