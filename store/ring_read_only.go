package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ReadRing calls take with each batch of the ring in a folder, in order. It writes no files, so another process may
// have the ring open. first is the number of the batch's first entry. The body is only valid during the call. Batches
// that the other process is writing or removing are skipped. For each damaged segment, it reads the batches before the
// damage and calls damaged with a *CorruptError or a *FormatVersionError. It returns read errors, after which batches
// may be missing; a later call may succeed.
func (d Disk) ReadRing(dir string, take func(first uint64, b RingBatch), damaged func(error)) error {
	entries, err := d.ReadDir(dir)
	if err != nil {
		return explainFileError("list", dir, err)
	}
	var buf []byte
	for _, e := range entries {
		number, ok := parseSegmentNumber(e.Name())
		if !ok {
			continue
		}
		path := filepath.Join(dir, e.Name())
		err := d.readStoredSegment(path, number, &buf, take)
		corrupt, version := (*CorruptError)(nil), (*FormatVersionError)(nil)
		switch {
		case errors.As(err, &corrupt), errors.As(err, &version):
			damaged(err)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return explainFileError("read", path, err)
		}
	}
	return nil
}

// readStoredSegment calls take with each batch of a segment that precedes the first invalid batch.
func (d Disk) readStoredSegment(path string, number uint64, buf *[]byte, take func(first uint64, b RingBatch)) error {
	f, err := d.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s, err := readSegmentHead(f, path)
	if err == nil && s.number != number {
		err = fmt.Errorf("the file belongs to segment %d: %w", s.number, errNotSound)
	}
	for err == nil && s.endOffset < info.Size() {
		var first uint64
		var b RingBatch
		if first, b, err = readBatch(f, s.endOffset, info.Size(), buf); err == nil {
			take(first, b)
			s.countBatch(b)
		}
	}
	if !errors.Is(err, errNotSound) {
		return err
	}
	more, failed := hasSoundBatchAfter(f, s.endOffset, info.Size())
	switch {
	case failed != nil:
		return failed
	case more:
		return &CorruptError{path, err.Error()}
	}
	return nil // the last write is incomplete or was torn
}
