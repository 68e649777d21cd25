package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// RingPosition is the position of a reader in a ring. The zero value is the start of the ring.
type RingPosition struct {
	nextEntryNumber uint64 // number of the next entry to be read
	segmentNumber   uint64
	offset          int64
}

// NextEntryNumber returns the number of the first entry that has not been read.
func (p RingPosition) NextEntryNumber() uint64 { return max(p.nextEntryNumber, 1) }

// ReadBatches calls take with each batch after the position from, in order, and returns the position after the last
// batch. first is the number of the batch's first entry. The body is only valid during the call. Batches that are
// removed in the meantime are skipped. A damaged segment is renamed and a *CorruptError is returned. Before it returns
// the error, it reads the batches before the damage; the returned position is after the damaged segment.
func (r *RingLog) ReadBatches(from RingPosition, take func(first uint64, b RingBatch)) (RingPosition, error) {
	r.mu.Lock()
	segments := append([]ringSegment(nil), r.segments...)
	r.mu.Unlock()
	var buf []byte
	for _, s := range segments {
		if s.number < from.segmentNumber {
			continue
		}
		if s.number > from.segmentNumber {
			from.segmentNumber, from.offset = s.number, segmentHeadSize
		}
		var err error
		if from, err = r.readSegment(s, from, &buf, take); err != nil {
			return from, err
		}
	}
	return from, nil
}

func (r *RingLog) readSegment(s ringSegment, from RingPosition, buf *[]byte, take func(uint64,
	RingBatch)) (RingPosition,
	error) {
	if from.offset >= s.endOffset {
		return from, nil
	}
	path := r.segmentPath(s.number)
	f, err := r.disk.OpenFile(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return from, nil // the segment was removed concurrently to make room
	}
	if err != nil {
		return from, explainFileError("read", path, err)
	}
	for from.offset < s.endOffset && err == nil {
		var first uint64
		var b RingBatch
		if first, b, err = readBatch(f, from.offset, s.endOffset, buf); err != nil {
			break
		}
		if after := first + uint64(b.EntryCount); first >= from.nextEntryNumber {
			take(first, b)
			from.nextEntryNumber = after
		}
		from.offset += int64(len(b.Body) + batchOverhead)
	}
	err = errors.Join(err, f.Close())
	if errors.Is(err, errNotSound) {
		return RingPosition{nextEntryNumber: from.nextEntryNumber, segmentNumber: s.number + 1,
			offset: segmentHeadSize}, r.setAsideSegment(s.number, err)
	}
	if err != nil {
		return from, explainFileError("read", path, err)
	}
	return from, nil
}

// setAsideSegment removes a damaged segment from the ring and renames its file. It returns the reason with the new name
// as an error.
func (r *RingLog) setAsideSegment(number uint64, reason error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetSegment(number)
	path := r.segmentPath(number)
	cause, version := error(&CorruptError{path, reason.Error()}), (*FormatVersionError)(nil)
	if errors.As(reason, &version) {
		cause = version
	}
	aside, err := r.disk.SetAsideFile(path)
	if err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("%w; the file was renamed to %s", cause, aside)
}

// recoverSegments loads all segments in the folder and repairs or renames the damaged ones.
func (r *RingLog) recoverSegments() (found RingDamage, err error) {
	entries, err := r.disk.ReadDir(r.dir)
	if err != nil {
		return found, explainFileError("list", r.dir, err)
	}
	var numbers []uint64 // numbers of the segment files in ascending order
	for _, e := range entries {
		if number, ok := parseSegmentNumber(e.Name()); ok {
			numbers = append(numbers, number)
		}
	}
	for i, number := range numbers {
		r.newestSegmentNumber = number
		cut, err := r.recoverSegment(number, i == len(numbers)-1)
		found.CutBytes += cut
		damaged, version := (*CorruptError)(nil), (*FormatVersionError)(nil)
		switch {
		case errors.As(err, &damaged) || errors.As(err, &version):
			found.SetAsideErrors = append(found.SetAsideErrors, err)
		case err != nil:
			return found, err
		}
	}
	if err := r.disk.SyncDir(r.dir); err != nil {
		return found, explainFileError("fsync", r.dir, err)
	}
	return found, nil
}

// recoverSegment loads a segment. If the end of the segment is invalid and no valid batch follows, it cuts the end off.
// If no batch is left, it removes the file. The last segment remains open.
func (r *RingLog) recoverSegment(number uint64, last bool) (cut int64, err error) {
	path := r.segmentPath(number)
	f, err := r.disk.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, explainFileError("open", path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return 0, explainFileError("open", path, errors.Join(err, f.Close()))
	}
	s, err := scanSegment(f, path, number, info.Size())
	torn := false
	if errors.Is(err, errNotSound) {
		more, failed := hasSoundBatchAfter(f, s.endOffset, info.Size())
		if torn = failed == nil && !more; torn {
			err = nil
		} else if failed != nil {
			err = failed
		}
	}
	version := (*FormatVersionError)(nil)
	switch {
	case errors.Is(err, errNotSound) || errors.As(err, &version):
		_ = f.Close() // the error does not matter, because nothing was written
		return 0, r.setAsideSegment(number, err)
	case err != nil:
		return 0, explainFileError("read", path, errors.Join(err, f.Close()))
	}
	if torn {
		cut = info.Size() - s.endOffset
	}
	return cut, r.addRecoveredSegment(f, s, last, torn)
}

// addRecoveredSegment adds a scanned segment to the ring. It truncates the file after the last valid batch if torn is
// true.
func (r *RingLog) addRecoveredSegment(f File, s ringSegment, last, torn bool) error {
	path := r.segmentPath(s.number)
	if s.entryCount == 0 { // the first write of the segment was torn
		if err := errors.Join(f.Close(), r.disk.Remove(path)); err != nil {
			return explainFileError("remove", path, err)
		}
		return nil
	}
	var err error
	if torn {
		err = f.Truncate(s.endOffset)
	}
	if err == nil && (last || torn) {
		err = f.Sync() // make the data durable, because the process that wrote the data may have died before its fsync
	}
	if err != nil || !last {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return explainFileError("write", path, err)
	}
	if last {
		r.segmentFile = f
	}
	r.segments = append(r.segments, s)
	r.nextEntryNumber = max(r.nextEntryNumber, s.firstEntry+uint64(s.entryCount))
	r.newestEntryTime = max(r.newestEntryTime, s.newestBatchTime)
	return nil
}

// scanSegment reads all batches of a segment. It returns errNotSound at the first invalid batch.
func scanSegment(f File, path string, number uint64, size int64) (ringSegment, error) {
	s, err := readSegmentHead(f, path)
	if err == nil && s.number != number {
		err = fmt.Errorf("the file belongs to segment %d: %w", s.number, errNotSound)
	}
	if err != nil {
		return ringSegment{number: number}, err
	}
	var buf []byte
	for s.endOffset < size {
		first, b, err := readBatch(f, s.endOffset, size, &buf)
		if err != nil {
			return s, err
		}
		if first != s.firstEntry+uint64(s.entryCount) {
			return s, fmt.Errorf("entry number is %d instead of %d: %w", first, s.firstEntry+uint64(s.entryCount),
				errNotSound)
		}
		s.countBatch(b)
	}
	return s, nil
}
