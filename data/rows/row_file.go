package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/fedmesh/fedmesh/store"
)

var littleEndian = binary.LittleEndian

const (
	// MinFreeDiskBytes is the room on a disk that rows do not take: the program's state needs some, and others'.
	MinFreeDiskBytes = 16 << 20
	// writeBufferBytes is how much is written at once, and readBufferBytes how much is read, in bytes.
	writeBufferBytes, readBufferBytes = 256 << 10, 64 << 10
	rowFilePattern                    = "rows-*.tmp"
)

// RowFile is rows in a file. It can be made again, so it is never synced, and has no name where the system lets it lose
// its name: nobody else can change it, and it goes with the process. A row is its features, its target, and if timed
// its time, little-endian.
//
// One goroutine adds rows; others may read those that were there meanwhile. Reads go through the page cache by pread,
// and not by a mapping: a disk that fails is then an error, where a mapping would have the process killed.
type RowFile struct {
	Folder           string
	MinFreeDisk      int64 // the room on its disk that it does not take
	File             *os.File
	valuesPerRow     int // of features and target
	hasTimes         bool
	rowBytes         int64                 // of a row
	writtenRowCount  int                   // that are written
	writeBuffer      []byte                // of those behind
	spaceCheckedSize int64                 // the size up to which there is room on the disk
	firstReadErr     atomic.Pointer[error] // of the first read that failed
}

// newRowFile makes a file for rows of so many features in a folder.
func newRowFile(folder string, features int, timed bool) (*RowFile, error) {
	f := &RowFile{Folder: folder, MinFreeDisk: MinFreeDiskBytes, valuesPerRow: features + 1, hasTimes: timed,
		rowBytes: 4 * (int64(features) + 1)}
	if timed {
		f.rowBytes += 8
	}
	removeLeftoverRowFiles(folder)
	var err error
	if f.File, err = os.CreateTemp(folder, rowFilePattern); err != nil {
		return nil, f.explainNeededSpace(err)
	}
	_ = os.Remove(f.File.Name()) // Windows keeps the name until the file is closed: removeLeftoverRowFiles removes it
	return f, nil
}

// removeLeftoverRowFiles removes the names of files that a process has left behind: those in use lose nothing by it.
func removeLeftoverRowFiles(folder string) {
	left, _ := filepath.Glob(filepath.Join(folder, rowFilePattern)) // the pattern is good
	for _, path := range left {
		_ = os.Remove(path)
	}
}

// explainNeededSpace says what the rows need.
func (f *RowFile) explainNeededSpace(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("the rows are too many for memory, and cannot be kept in %s: %w", f.Folder, err)
}

// len is how many rows were added.
func (f *RowFile) len() int { return f.writtenRowCount + len(f.writeBuffer)/int(f.rowBytes) }

// addRows appends rows, soon.
func (f *RowFile) addRows(x, y []float32, times []int64) error {
	features := f.valuesPerRow - 1
	for i, target := range y {
		for _, v := range x[i*features:][:features] {
			f.writeBuffer = littleEndian.AppendUint32(f.writeBuffer, math.Float32bits(v))
		}
		f.writeBuffer = littleEndian.AppendUint32(f.writeBuffer, math.Float32bits(target))
		if f.hasTimes {
			f.writeBuffer = littleEndian.AppendUint64(f.writeBuffer, uint64(times[i]))
		}
		if len(f.writeBuffer) >= writeBufferBytes {
			if err := f.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes what was added.
func (f *RowFile) flush() error {
	at := int64(f.writtenRowCount) * f.rowBytes
	end := at + int64(len(f.writeBuffer))
	if end > f.spaceCheckedSize {
		if free, known := store.FreeDiskBytes(f.Folder); known && free < f.MinFreeDisk+int64(len(f.writeBuffer)) {
			return f.explainNeededSpace(fmt.Errorf("its disk has %d MB left after %d MB of them, and %d MB must "+
				"stay free: "+
				"free some space", free>>20, at>>20, f.MinFreeDisk>>20))
		}
		f.spaceCheckedSize = end
	}
	if _, err := f.File.WriteAt(f.writeBuffer, at); err != nil {
		return f.explainNeededSpace(err)
	}
	f.writtenRowCount += len(f.writeBuffer) / int(f.rowBytes)
	f.writeBuffer = f.writeBuffer[:0]
	return nil
}

// truncate forgets rows from one on, which no view has.
func (f *RowFile) truncate(n int) {
	f.writeBuffer = f.writeBuffer[:0]
	f.writtenRowCount = min(f.writtenRowCount, n)
	f.spaceCheckedSize = min(f.spaceCheckedSize, int64(f.writtenRowCount)*f.rowBytes) // others may take the room
	// for others, on a disk that is full
	_ = f.File.Truncate(int64(f.writtenRowCount) * f.rowBytes)
}

// rawRowBuffers are buffers for rows as they are in a file.
var rawRowBuffers = sync.Pool{New: func() any { return new([]byte) }}

// readRows fills x, y and times, each of which may be nil, with rows from one on that are written. What cannot
// be read is NaN in x, and 0 elsewhere, and makes the result false.
func (f *RowFile) readRows(x, y []float32, times []int64, from int) bool {
	raw := rawRowBuffers.Get().(*[]byte)
	defer rawRowBuffers.Put(raw)
	features, most := f.valuesPerRow-1, max(1, readBufferBytes/int(f.rowBytes))
	for n, done := max(len(y), len(times)), 0; done < n; {
		rows := min(most, n-done)
		if need := rows * int(f.rowBytes); cap(*raw) < need {
			*raw = make([]byte, need)
		}
		b := (*raw)[:rows*int(f.rowBytes)]
		if _, err := f.File.ReadAt(b, int64(from+done)*f.rowBytes); err != nil {
			f.markRowsUnreadable(err, x[min(len(x), done*features):], y[min(len(y), done):], times[min(len(times),
				done):])
			return false
		}
		for ; rows > 0; rows-- {
			if y != nil {
				for j := range features {
					x[done*features+j] = math.Float32frombits(littleEndian.Uint32(b[4*j:]))
				}
				y[done] = math.Float32frombits(littleEndian.Uint32(b[4*features:]))
			}
			if times != nil {
				times[done] = int64(littleEndian.Uint64(b[4*f.valuesPerRow:]))
			}
			b, done = b[f.rowBytes:], done+1
		}
	}
	return true
}

// markRowsUnreadable notes that rows cannot be read.
func (f *RowFile) markRowsUnreadable(err error, x, y []float32, times []int64) {
	err = fmt.Errorf("the rows that are kept in %s cannot be read: %w", f.Folder, err)
	f.firstReadErr.CompareAndSwap(nil, &err)
	for i := range x {
		x[i] = float32(math.NaN())
	}
	clear(y)
	clear(times)
}

// err is why rows could not be read; nil if all could.
func (f *RowFile) err() error {
	if e := f.firstReadErr.Load(); e != nil {
		return *e
	}
	return nil
}
