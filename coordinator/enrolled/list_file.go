package enrolled

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/fedmesh/fedmesh/store"
)

// ErrStale means that the list file is missing, damaged or made from another text file. It must be rebuilt.
var ErrStale = errors.New("the list of agents is out of date and must be rebuilt")

// CountAgents returns the number of agents in a list file without reading its records. It returns ErrStale if the file
// was not made from the given text.
func CountAgents(d store.Disk, path string, text store.FileStamp) (int, error) {
	f, n, _, err := openAndReadHeader(d, path, text)
	if err != nil {
		return 0, err
	}
	return n, f.Close()
}

// Open opens a list file. The error wraps ErrStale if the file is damaged or was not made from the given text.
func Open(d store.Disk, path string, text store.FileStamp) (*List, error) {
	f, n, sum, err := openAndReadHeader(d, path, text)
	if err != nil {
		return nil, err
	}
	l, is, err := newIndexedList(f, n)
	if err != nil || is != sum {
		return nil, errors.Join(ErrStale, err, f.Close())
	}
	return l, nil
}

// openAndReadHeader opens a list file and returns the record count and the checksum in its header.
func openAndReadHeader(d store.Disk, path string, text store.FileStamp) (f store.File, records int, sum uint32,
	err error) {
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
	made := store.FileStamp{Size: number(8), ModifiedAt: number(16), ChangedAt: number(24)}
	records = int(binary.LittleEndian.Uint32(head[len(magic):]))
	if err != nil || string(head[:len(magic)]) != magic || made != text ||
		info.Size() != int64(headSize)+int64(records)*recordSize {
		return nil, 0, 0, errors.Join(ErrStale, err, f.Close())
	}
	return f, records, binary.LittleEndian.Uint32(head[headSize-4:]), nil
}
