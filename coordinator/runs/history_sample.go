package runs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// SampleHistory returns about the given number of lines of the newest run, evenly spaced in the file and in the order
// of the file, with the newest line as the last one. It returns all lines of a run with fewer lines. It reads only the
// sampled lines, so it needs milliseconds for a file of any size. Damaged lines are left out.
func SampleHistory(dir string, lines int) ([]HistoryEntry, error) {
	f, err := os.Open(filepath.Join(dir, historyFile))
	if errors.Is(err, fs.ErrNotExist) { // no round has ended yet
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	newest, ok := newestHistoryEntry(dir)
	if !ok {
		return nil, nil
	}
	s := historySampler{file: f}
	begin := s.startOfRun(newest.Run, info.Size())
	const usualLineBytes = 400
	if info.Size()-begin <= int64(lines)*usualLineBytes {
		var all []HistoryEntry
		for offset := begin; ; {
			h, end, ok := s.entryAfter(offset)
			if !ok {
				return all, s.err
			}
			if offset = end; h.Run == newest.Run {
				all = append(all, h)
			}
		}
	}
	all := make([]HistoryEntry, 0, lines)
	next := begin // offset after the last line of the sample
	for i := range int64(lines) {
		h, end, ok := s.entryAfter(max(next, begin+i*(info.Size()-begin)/int64(lines)))
		isNewest := h.Time.Equal(newest.Time) && h.Round == newest.Round && h.Kind == newest.Kind
		if ok && h.Run == newest.Run && !isNewest {
			all, next = append(all, h), end
		}
	}
	return append(all, newest), s.err
}

// newestHistoryEntry returns the last undamaged line of the history.
func newestHistoryEntry(dir string) (h HistoryEntry, ok bool) {
	for line, err := range store.LocalDisk.NewestHistoryLines(filepath.Join(dir, historyFile)) {
		if h = (HistoryEntry{}); err == nil && json.Unmarshal(line, &h) == nil {
			return h, true
		}
	}
	return h, false
}

// historySampler reads single lines of a history file.
type historySampler struct {
	file *os.File
	err  error // first error of the file; damaged lines are no errors
}

// entryAfter returns the first undamaged line that begins at or after offset, where a line begins at offset only if
// offset is 0 or the previous byte is a line break. end is the offset of the next line.
func (s *historySampler) entryAfter(offset int64) (h HistoryEntry, end int64, ok bool) {
	from := max(offset-1, 0)
	if _, err := s.file.Seek(from, io.SeekStart); err != nil {
		s.err = errors.Join(s.err, err)
		return h, 0, false
	}
	r := bufio.NewReaderSize(s.file, 4096)
	end = from
	if offset > 0 {
		skipped, err := r.ReadBytes('\n')
		if end += int64(len(skipped)); err != nil {
			return h, 0, false
		}
	}
	for {
		line, err := r.ReadBytes('\n')
		if err != nil { // io.EOF: the last line is incomplete, because it is being written
			if !errors.Is(err, io.EOF) {
				s.err = errors.Join(s.err, fmt.Errorf("%s: %w", historyFile, err))
			}
			return h, 0, false
		}
		end += int64(len(line))
		if json.Unmarshal(line, &h) == nil {
			return h, end, true
		}
		h = HistoryEntry{}
	}
}

// startOfRun returns an offset at or before the first line of a run. Run numbers do not decrease within the file.
func (s *historySampler) startOfRun(run wire.RunID, size int64) int64 {
	const blockBytes = 4096
	blocks := int(size/blockBytes) + 1
	first := sort.Search(blocks, func(i int) bool {
		h, _, ok := s.entryAfter(int64(i) * blockBytes)
		return !ok || h.Run >= run
	})
	return int64(max(first-1, 0)) * blockBytes
}
