package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"sync"
)

// maxHistoryLine is the maximum length of a line in bytes, including the newline. It limits the memory for reading a
// damaged file.
const maxHistoryLine = 1 << 20

// RoundHistory is an append-only file with one JSON line per round, for charts.
type RoundHistory struct {
	path string

	mu        sync.Mutex
	file      File
	endOffset int64 // offset in bytes of the end of the last complete line
}

// OpenRoundHistory opens or creates the history at path. It removes an incomplete last line. It also fsyncs the file,
// because a killed process may have written lines without syncing them, and these lines are not written again.
func (d Disk) OpenRoundHistory(path string) (*RoundHistory, error) {
	f, err := d.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explainFileError("open", path, err)
	}
	h := &RoundHistory{path: path, file: f}
	if h.endOffset, err = endOfLastLine(f); err == nil {
		err = f.Truncate(h.endOffset)
	}
	if err == nil && h.endOffset > 0 {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(explainFileError("open", path, err), f.Close())
	}
	return h, nil
}

// endOfLastLine returns the offset after the last newline of f. It searches backwards.
func endOfLastLine(f File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	block := make([]byte, 4<<10)
	for end := info.Size(); end > 0; {
		begin := max(0, end-int64(len(block)))
		p := block[:end-begin]
		if _, err := f.ReadAt(p, begin); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(p, '\n'); i >= 0 {
			return begin + int64(i) + 1, nil
		}
		end = begin
	}
	return 0, nil
}

// Append appends v as one JSON line with one write, and fsyncs the file. On error it restores the previous length.
func (h *RoundHistory) Append(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("store: append to %s: %w", h.path, err)
	}
	line = append(line, '\n')
	if len(line) > maxHistoryLine {
		return fmt.Errorf("store: append to %s: line has %d bytes, but at most %d are allowed",
			h.path, len(line), maxHistoryLine)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err = h.file.WriteAt(line, h.endOffset)
	if err == nil {
		err = h.file.Sync()
	}
	if err != nil {
		return errors.Join(explainFileError("append to", h.path, err), h.file.Truncate(h.endOffset))
	}
	h.endOffset += int64(len(line))
	return nil
}

// Size returns the total length of the complete lines in bytes.
func (h *RoundHistory) Size() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.endOffset
}

// Close closes the file.
func (h *RoundHistory) Close() error { return h.file.Close() }

// NewestHistoryLines yields the complete lines of the history at path, newest first and without newlines. A line is
// only valid until the next line is yielded. The file is read backwards in blocks, only as far as required. An error is
// yielded last, with a nil line. A missing file has no lines. An incomplete last line is skipped, because another
// goroutine may be appending it.
func (d Disk) NewestHistoryLines(path string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := d.OpenFile(path, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		var info fs.FileInfo
		if err == nil {
			defer f.Close() // the file is only read, so the error does not matter
			info, err = f.Stat()
		}
		if err == nil {
			err = readLinesBackwards(f, info.Size(), func(line []byte) bool { return yield(line, nil) })
		}
		switch {
		case errors.Is(err, errLineTooLong):
			yield(nil, &CorruptError{path, fmt.Sprintf("a line is longer than %d bytes", maxHistoryLine)})
		case err != nil:
			yield(nil, explainFileError("read", path, err))
		}
	}
}

var errLineTooLong = errors.New("a line is too long")

// historyBlockSize is the number of bytes read at a time.
const historyBlockSize = 16 << 10

// readLinesBackwards calls line with each complete line in the first size bytes of r, last line first, until line
// returns false.
func readLinesBackwards(r io.ReaderAt, size int64, line func([]byte) bool) error {
	var tail []byte // bytes after begin that have not been passed to line
	whole := false  // whether tail ends at the end of a line
	for begin := size; begin > 0; {
		n := min(begin, historyBlockSize)
		block := make([]byte, int(n)+len(tail))
		if _, err := r.ReadAt(block[:n], begin-n); err != nil {
			return err
		}
		copy(block[n:], tail)
		begin -= n
		for {
			i := bytes.LastIndexByte(block, '\n')
			if i < 0 {
				break
			}
			if whole && !line(block[i+1:]) {
				return nil
			}
			whole, block = true, block[:i]
		}
		if len(block) >= maxHistoryLine {
			return errLineTooLong
		}
		tail = block
	}
	if whole {
		line(tail)
	}
	return nil
}
