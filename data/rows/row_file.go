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
	// MinFreeDiskBytes is the disk space that row files leave free, for the state of the program and for other
	// programs.
	MinFreeDiskBytes = 16 << 20
	// writeBufferBytes and readBufferBytes are the numbers of bytes per write and per read.
	writeBufferBytes, readBufferBytes = 256 << 10, 64 << 10
	rowFilePattern                    = "rows-*.tmp"
)

// RowFile stores rows in a temporary file. The file can be made again from the source, so it is never synced. The name
// of the file is removed if the system allows this, so that no other process can change it and it disappears with the
// process. A row contains its features, its target and, if hasTimes is true, its time, little endian.
//
// One goroutine may add rows while others read earlier rows. Reads use pread instead of a memory mapping, because a
// disk failure is then an error and does not kill the process.
type RowFile struct {
	Folder           string
	MinFreeDisk      int64 // disk space that must remain free, in bytes
	File             *os.File
	valuesPerRow     int // number of features plus one target
	hasTimes         bool
	rowBytes         int64                 // length of a row in bytes
	writtenRowCount  int                   // number of rows written to the file
	writeBuffer      []byte                // encoded rows that have not been written yet
	spaceCheckedSize int64                 // file size up to which free space was checked
	firstReadErr     atomic.Pointer[error] // first read error
}

// newRowFile creates a file for rows with the given number of features in a folder.
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
	_ = os.Remove(f.File.Name()) // on Windows the name remains until removeLeftoverRowFiles removes it
	return f, nil
}

// removeLeftoverRowFiles removes the names of row files from earlier processes. Files in use remain accessible.
func removeLeftoverRowFiles(folder string) {
	left, _ := filepath.Glob(filepath.Join(folder, rowFilePattern)) // the pattern is valid, so there is no error
	for _, path := range left {
		_ = os.Remove(path)
	}
}

// explainNeededSpace adds the purpose of the row file and its folder to an error.
func (f *RowFile) explainNeededSpace(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("the rows do not fit into memory and cannot be stored in %s: %w", f.Folder, err)
}

// len returns the number of rows that were added.
func (f *RowFile) len() int { return f.writtenRowCount + len(f.writeBuffer)/int(f.rowBytes) }

// addRows appends rows to the buffer and writes the buffer when it is full.
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

// flush writes the buffered rows to the file.
func (f *RowFile) flush() error {
	at := int64(f.writtenRowCount) * f.rowBytes
	end := at + int64(len(f.writeBuffer))
	if end > f.spaceCheckedSize {
		if free, known := store.FreeDiskBytes(f.Folder); known && free < f.MinFreeDisk+int64(len(f.writeBuffer)) {
			return f.explainNeededSpace(fmt.Errorf(
				"the disk has %d MB left after %d MB of rows, but %d MB must stay free: free some space",
				free>>20, at>>20, f.MinFreeDisk>>20))
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

// truncate removes all rows from index n on. No snapshot may contain these rows.
func (f *RowFile) truncate(n int) {
	f.writeBuffer = f.writeBuffer[:0]
	f.writtenRowCount = min(f.writtenRowCount, n)
	// Check the free space again, because other programs may use the freed space.
	f.spaceCheckedSize = min(f.spaceCheckedSize, int64(f.writtenRowCount)*f.rowBytes)
	// Truncate the file, so that other programs can use the space if the disk is full.
	_ = f.File.Truncate(int64(f.writtenRowCount) * f.rowBytes)
}

// rawRowBuffers contains buffers for encoded rows.
var rawRowBuffers = sync.Pool{New: func() any { return new([]byte) }}

// readRows fills x, y and times with written rows that start at from. x and y, or times, may be nil. If rows cannot be
// read, it sets x to NaN and y and times to 0, and returns false.
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

// markRowsUnreadable stores a read error and fills the unread rows with NaN and 0.
func (f *RowFile) markRowsUnreadable(err error, x, y []float32, times []int64) {
	err = fmt.Errorf("cannot read the rows stored in %s: %w", f.Folder, err)
	f.firstReadErr.CompareAndSwap(nil, &err)
	for i := range x {
		x[i] = float32(math.NaN())
	}
	clear(y)
	clear(times)
}

// err returns the first read error, or nil.
func (f *RowFile) err() error {
	if e := f.firstReadErr.Load(); e != nil {
		return *e
	}
	return nil
}
