package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// RingLog is a bounded log of entries in a folder. Entries are appended in batches, each with one write and one fsync,
// to the newest of several files, the segments; when a bound is reached the oldest segment is removed. Entries are
// numbered from 1, in the order in which they came, and their numbers are on the disk: none is read twice. All methods
// may be called concurrently.
//
// A segment is named ring-NUMBER.segment; ring_format.go has its bytes. An end that is not sound is a write that was
// not acknowledged: it is cut off. Damage that has something sound behind it is of what was synced: that segment is set
// aside, and the ring goes on without it.
type RingLog struct {
	disk   Disk
	dir    string
	limits RingLimits

	mu                  sync.Mutex
	isClosed            bool
	segments            []ringSegment // by number
	segmentFile         File          // of the last one; nil = the next batch begins a segment
	newestSegmentNumber uint64        // of the newest segment that there ever was
	nextEntryNumber     uint64        // number of the next entry
	newestEntryTime     int64         // time of all entries
}

// RingLimits limits the size of a ring. A sixteenth of a limit is removed at once. Entries may become a quarter older
// than MaxAge, because a few wrong times must not remove the others: see countExpiredSegments.
type RingLimits struct {
	MaxBytes   int64         // on the disk, at least MinRingBytes
	MaxEntries int           // 0 = no bound
	MaxAge     time.Duration // of the oldest, counted back from the newest; 0 = no bound
}

const (
	// MinRingBytes is the least bound of a ring, in bytes.
	MinRingBytes = 1 << 20
	// segmentsPerFullRing is into how many segments a full ring is divided.
	segmentsPerFullRing = 16
	// maxBatchBodyBytes bounds the body of a batch, in bytes.
	maxBatchBodyBytes = 1 << 20
)

// RingBatch is entries that are appended together.
type RingBatch struct {
	EntryCount      int   // in the body, from 1
	NewestEntryTime int64 // of their times, in nanoseconds since 1970
	Body            []byte
}

// ringSegment is a file of the ring, as far as it is durable.
type ringSegment struct {
	number, firstEntry               uint64 // its own number, and that of its first entry
	endOffset                        int64  // of the last batch
	entryCount                       int
	oldestBatchTime, newestBatchTime int64 // of the batches' times
}

// RingDamage is what OpenRing found wrong. Nothing of it keeps the ring from working.
type RingDamage struct {
	CutBytes       int64   // bytes of a torn write that were cut off
	SetAsideErrors []error // why each segment was set aside: a *CorruptError or a *FormatVersionError, and its new name
}

// RingSize is how much is in a ring.
type RingSize struct {
	Entries         int
	Segments        int
	Bytes           int64
	NewestEntryTime int64 // time of the newest entry, in nanoseconds since 1970; 0 if there is none
}

// OpenRing opens the ring in the folder dir, or makes it; its parent must exist. All that is found is durable when
// OpenRing returns.
func (d Disk) OpenRing(dir string, keep RingLimits) (*RingLog, RingDamage, error) {
	if keep.MaxBytes < MinRingBytes || keep.MaxEntries < 0 || keep.MaxAge < 0 {
		panic(fmt.Sprintf("store: OpenRing that keeps %+v", keep))
	}
	r := &RingLog{disk: d, dir: dir, limits: keep, nextEntryNumber: 1}
	if err := d.MakeDir(dir); err != nil {
		return nil, RingDamage{}, err
	}
	found, err := r.recoverSegments()
	if err != nil {
		return nil, found, errors.Join(err, r.Close())
	}
	return r, found, nil
}

// MaxBatchSize is the most entries in a batch that Append takes, and the most bytes of a body.
func (r *RingLog) MaxBatchSize() (entries, bytes int) {
	entries, bytes = math.MaxInt32, int(min(maxBatchBodyBytes,
		r.limits.MaxBytes/segmentsPerFullRing-segmentHeadSize-batchOverhead))
	if r.limits.MaxEntries > 0 {
		entries = max(r.limits.MaxEntries/segmentsPerFullRing, 1)
	}
	return entries, bytes
}

// Append writes a batch durably, after it has made room for it. After an error the ring is as before, less what was
// removed to make room. The batch may be on the disk even so, and Append must get it again before any other.
func (r *RingLog) Append(b RingBatch) error {
	if entries, bytes := r.MaxBatchSize(); b.EntryCount < 1 || b.EntryCount > entries || len(b.Body) > bytes {
		panic(fmt.Sprintf("store: a batch of %d entries in %d bytes; it may have %d in %d", b.EntryCount, len(b.Body),
			entries, bytes))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed {
		return ErrClosed
	}
	if err := r.makeRoom(b); err != nil {
		return err
	}
	var err error
	if r.segmentFile == nil || r.needsNewSegment(b) {
		err = r.beginSegment(b)
	} else {
		err = r.appendToLastSegment(b)
	}
	if err == nil {
		r.nextEntryNumber += uint64(b.EntryCount)
		r.newestEntryTime = max(r.newestEntryTime, b.NewestEntryTime)
	}
	return err
}

// needsNewSegment reports whether a batch belongs into another segment than the last one.
func (r *RingLog) needsNewSegment(b RingBatch) bool {
	last := r.segments[len(r.segments)-1]
	return last.endOffset+int64(len(b.Body)+batchOverhead) > r.limits.MaxBytes/segmentsPerFullRing ||
		r.limits.MaxEntries > 0 && last.entryCount+b.EntryCount > max(r.limits.MaxEntries/segmentsPerFullRing, 1) ||
		r.limits.MaxAge > 0 && b.NewestEntryTime-last.oldestBatchTime > int64(r.limits.MaxAge/segmentsPerFullRing)
}

// makeRoom removes the oldest segments until a batch fits.
func (r *RingLog) makeRoom(b RingBatch) error {
	bytes, entries := int64(segmentHeadSize+batchOverhead+len(b.Body)), b.EntryCount
	for _, s := range r.segments {
		bytes += s.endOffset
		entries += s.entryCount
	}
	expired := r.countExpiredSegments()
	for len(r.segments) > 0 {
		s := r.segments[0]
		if bytes <= r.limits.MaxBytes && (r.limits.MaxEntries == 0 || entries <= r.limits.MaxEntries) && expired == 0 {
			return nil
		}
		expired = max(0, expired-1)
		if len(r.segments) == 1 {
			r.endSegment()
		}
		if err := r.disk.Remove(r.segmentPath(s.number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return explainFileError("remove", r.segmentPath(s.number), err)
		}
		bytes -= s.endOffset
		entries -= s.entryCount
		r.segments = r.segments[1:]
	}
	return nil
}

// countExpiredSegments returns the number of segments, counted from the oldest, whose entries are all older than
// keep.MaxAge. The age is relative to the oldest batch of the last three segments, and a segment expires at the latest
// with the next two: a clock that is years ahead for a moment neither removes the earlier entries nor keeps its own
// segment for years.
func (r *RingLog) countExpiredSegments() (n int) {
	const several = 3
	last := len(r.segments) - several
	if r.limits.MaxAge == 0 {
		return 0
	}
	for n < last {
		limit, newest := int64(math.MaxInt64), int64(math.MaxInt64)
		for i := range several {
			limit = min(limit, r.segments[last+i].oldestBatchTime-int64(r.limits.MaxAge))
			newest = min(newest, r.segments[n+i].newestBatchTime)
		}
		if newest >= limit {
			break
		}
		n++
	}
	return n
}

// beginSegment makes a segment with a batch. It is durable, or it is not there.
func (r *RingLog) beginSegment(b RingBatch) error {
	r.endSegment()
	r.newestSegmentNumber++ // a file of that number may stay behind if it cannot be removed
	s := ringSegment{number: r.newestSegmentNumber, firstEntry: r.nextEntryNumber}
	p := appendBatch(appendSegmentHead(nil, s), r.nextEntryNumber, b)
	f, err := r.disk.OpenFile(r.segmentPath(s.number), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return explainFileError("write", r.segmentPath(s.number), err)
	}
	if _, err = f.WriteAt(p, 0); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = r.disk.SyncDir(r.dir)
	}
	if err != nil {
		return explainFileError("write", r.segmentPath(s.number), errors.Join(err, f.Close(),
			r.disk.Remove(r.segmentPath(s.number))))
	}
	s.endOffset = segmentHeadSize
	s.countBatch(b)
	r.segmentFile, r.segments = f, append(r.segments, s)
	return nil
}

// appendToLastSegment appends a batch to the last segment. A file that cannot be cut back to what it was is left, and
// the next batch begins another one: what is behind its end has numbers that come again there.
func (r *RingLog) appendToLastSegment(b RingBatch) error {
	s := &r.segments[len(r.segments)-1]
	_, err := r.segmentFile.WriteAt(appendBatch(nil, r.nextEntryNumber, b), s.endOffset)
	if err == nil {
		err = r.segmentFile.Sync()
	}
	if err != nil {
		cut := r.segmentFile.Truncate(s.endOffset)
		if cut != nil {
			r.endSegment()
		}
		return explainFileError("write", r.segmentPath(s.number), errors.Join(err, cut))
	}
	s.countBatch(b)
	return nil
}

// countBatch counts a batch at the end.
func (s *ringSegment) countBatch(b RingBatch) {
	if s.entryCount == 0 {
		s.oldestBatchTime, s.newestBatchTime = b.NewestEntryTime, b.NewestEntryTime
	}
	s.endOffset += int64(len(b.Body) + batchOverhead)
	s.entryCount += b.EntryCount
	s.oldestBatchTime, s.newestBatchTime = min(s.oldestBatchTime, b.NewestEntryTime), max(s.newestBatchTime,
		b.NewestEntryTime)
}

// endSegment has the next batch begin a segment. All that is acknowledged is durable, so an error of closing means
// nothing.
func (r *RingLog) endSegment() {
	if r.segmentFile != nil {
		_ = r.segmentFile.Close()
		r.segmentFile = nil
	}
}

// Size returns how much is in the ring.
func (r *RingLog) Size() RingSize {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := RingSize{Segments: len(r.segments), NewestEntryTime: r.newestEntryTime}
	for _, s := range r.segments {
		size.Entries += s.entryCount
		size.Bytes += s.endOffset
	}
	return size
}

// NextEntryNumber is the number that the next entry gets.
func (r *RingLog) NextEntryNumber() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nextEntryNumber
}

// Close closes the ring. What was appended is durable already.
func (r *RingLog) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isClosed = true
	r.endSegment()
	return nil
}

// forgetSegment forgets a segment.
func (r *RingLog) forgetSegment(number uint64) {
	if n := len(r.segments); n > 0 && r.segments[n-1].number == number {
		r.endSegment()
	}
	var left []ringSegment
	for _, s := range r.segments {
		if s.number != number {
			left = append(left, s)
		}
	}
	r.segments = left
}

func (r *RingLog) segmentPath(number uint64) string {
	return filepath.Join(r.dir, fmt.Sprintf("%s%012d%s", segmentFilePrefix, number, segmentFileSuffix))
}
