package store

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// maxHistoryLine bounds one line, newline included, so that reading a damaged file takes bounded memory.
const maxHistoryLine = 1 << 20

// History is an append-only file of JSON lines, one per round, for the charts. Nothing depends on its last lines:
// they are not fsynced, and a power cut may cost them.
type History struct {
	path string

	mu  sync.Mutex
	f   *os.File
	end int64 // of the last whole line
}

// OpenHistory opens or creates the history at path. A torn last line, left by a crash, is dropped.
func OpenHistory(path string) (*History, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explain("open", path, err)
	}
	h := &History{path: path, f: f}
	if h.end, err = lastNewline(f); err == nil {
		err = f.Truncate(h.end)
	}
	if err != nil {
		return nil, errors.Join(explain("open", path, err), f.Close())
	}
	return h, nil
}

// lastNewline returns the offset behind the last newline of f, reading backwards.
func lastNewline(f *os.File) (int64, error) {
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

// Append adds v as one JSON line with one write. After an error the file is as it was before.
func (h *History) Append(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("store: append to %s: %w", h.path, err)
	}
	line = append(line, '\n')
	if len(line) > maxHistoryLine {
		return fmt.Errorf("store: append to %s: a line of %d bytes: want at most %d", h.path, len(line), maxHistoryLine)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.f.WriteAt(line, h.end); err != nil {
		return errors.Join(explain("append to", h.path, err), h.f.Truncate(h.end))
	}
	h.end += int64(len(line))
	return nil
}

// Close closes the file.
func (h *History) Close() error { return h.f.Close() }

// ReadHistory calls line for every whole line of the history at path, oldest first, without its newline; the bytes
// are only valid during the call. An error of line ends the reading and is returned. A file that does not exist has
// no lines, and an unfinished last line is not shown: another goroutine may be appending it.
func ReadHistory(path string, line func(line []byte) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return explain("read", path, err)
	}
	defer f.Close() // nothing was written
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxHistoryLine)
	lines.Split(wholeLines)
	for lines.Scan() {
		if err := line(lines.Bytes()); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return &CorruptError{path, fmt.Sprintf("a line is longer than %d bytes", maxHistoryLine)}
	}
	if err := lines.Err(); err != nil {
		return explain("read", path, err)
	}
	return nil
}

// wholeLines is bufio.ScanLines without the last line that has no newline.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}
