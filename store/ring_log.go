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

// RingLog is a bounded log of entries in a folder. Each batch of entries is appended with one write and one fsync to
// the newest of several segment files. If a limit is reached, the oldest segment is removed. Entries are numbered from
// 1 in the order of arrival. The numbers are stored in the files, so that a reader never reads an entry twice. All
// methods may be called concurrently.
//
// Segments are named ring-NUMBER.segment; see ring_format.go. Invalid bytes at the end of a segment come from an
// unacknowledged write and are cut off. Damage before valid data affects synced entries: the segment is renamed, and
// the ring continues without it.
type RingLog struct {
	disk   Disk
	dir    string
	limits RingLimits

	mu                  sync.Mutex
	isClosed            bool
	segments            []ringSegment // segments in ascending order of number
	segmentFile         File          // open file of the last segment; nil if the next batch starts a new segment
	newestSegmentNumber uint64        // highest segment number that was ever used
	nextEntryNumber     uint64        // number of the next entry
	newestEntryTime     int64         // newest time of all entries
}

// RingLimits limits the size of a ring. When a limit is reached, up to a sixteenth of the ring is removed at once.
// Entries may exceed MaxAge by a quarter, because a few entries with wrong times must not cause the removal of all
// other entries: see countExpiredSegments.
type RingLimits struct {
	MaxBytes   int64         // maximum size on disk in bytes, at least MinRingBytes
	MaxEntries int           // maximum number of entries; 0 means no limit
	MaxAge     time.Duration // maximum age of an entry relative to the newest entry; 0 means no limit
}

const (
	// MinRingBytes is the minimum of RingLimits.MaxBytes.
	MinRingBytes = 1 << 20
	// segmentsPerFullRing is the number of segments in a full ring.
	segmentsPerFullRing = 16
	// maxBatchBodyBytes is the maximum length of a batch body in bytes.
	maxBatchBodyBytes = 1 << 20
)

// RingBatch is a group of entries that are appended together.
type RingBatch struct {
	EntryCount      int   // number of entries in the body, at least 1
	NewestEntryTime int64 // newest time of the entries, in nanoseconds since 1970
	Body            []byte
}

// ringSegment describes the durable part of a segment file.
type ringSegment struct {
	number, firstEntry               uint64 // number of the segment and of its first entry
	endOffset                        int64  // offset in bytes of the end of the last batch
	entryCount                       int
	oldestBatchTime, newestBatchTime int64 // minimum and maximum of the batches' NewestEntryTime
}

// RingDamage describes damage that OpenRing found. The ring works in spite of it.
type RingDamage struct {
	CutBytes       int64   // number of bytes that were cut off after torn writes
	SetAsideErrors []error // one *CorruptError or *FormatVersionError for each renamed segment, with its new name
}

// RingSize is the amount of data in a ring.
type RingSize struct {
	Entries         int
	Segments        int
	Bytes           int64
	NewestEntryTime int64 // time of the newest entry, in nanoseconds since 1970; 0 if the ring is empty
}

// OpenRing opens or creates the ring in the folder dir. The parent of dir must exist. All entries that it finds are
// durable when OpenRing returns.
func (d Disk) OpenRing(dir string, keep RingLimits) (*RingLog, RingDamage, error) {
	if keep.MaxBytes < MinRingBytes || keep.MaxEntries < 0 || keep.MaxAge < 0 {
		panic(fmt.Sprintf("store: OpenRing: invalid limits %+v", keep))
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

// MaxBatchSize returns the maximum number of entries in a batch and the maximum length of a body in bytes.
func (r *RingLog) MaxBatchSize() (entries, bytes int) {
	entries, bytes = math.MaxInt32, int(min(maxBatchBodyBytes,
		r.limits.MaxBytes/segmentsPerFullRing-segmentHeadSize-batchOverhead))
	if r.limits.MaxEntries > 0 {
		entries = max(r.limits.MaxEntries/segmentsPerFullRing, 1)
	}
	return entries, bytes
}

// Append appends a batch durably, after removing old segments to make room. After an error the ring contains no new
// entry, but the batch may already be on disk. The caller must therefore retry the same batch before appending any
// other.
func (r *RingLog) Append(b RingBatch) error {
	if entries, bytes := r.MaxBatchSize(); b.EntryCount < 1 || b.EntryCount > entries || len(b.Body) > bytes {
		panic(fmt.Sprintf(
			"store: batch of %d entries in %d bytes exceeds the limit of %d entries in %d bytes",
			b.EntryCount, len(b.Body),
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

// needsNewSegment reports whether the batch does not fit into the last segment.
func (r *RingLog) needsNewSegment(b RingBatch) bool {
	last := r.segments[len(r.segments)-1]
	return last.endOffset+int64(len(b.Body)+batchOverhead) > r.limits.MaxBytes/segmentsPerFullRing ||
		r.limits.MaxEntries > 0 && last.entryCount+b.EntryCount > max(r.limits.MaxEntries/segmentsPerFullRing, 1) ||
		r.limits.MaxAge > 0 && b.NewestEntryTime-last.oldestBatchTime > int64(r.limits.MaxAge/segmentsPerFullRing)
}

// makeRoom removes the oldest segments until the batch fits into the limits.
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

// countExpiredSegments returns the number of oldest segments whose entries all exceed limits.MaxAge, relative to the
// oldest batch of the last three segments. A segment expires at the latest together with the next two segments. So if a
// clock is years ahead for a short time, earlier entries are not removed, and the entries with wrong times are not kept
// for years.
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

// beginSegment creates a segment with one batch durably. On error it removes the file again.
func (r *RingLog) beginSegment(b RingBatch) error {
	r.endSegment()
	r.newestSegmentNumber++ // never reuse a segment number, because a file that could not be removed may remain
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

// appendToLastSegment appends a batch to the last segment. If the bytes of a failed write cannot be cut off, the next
// batch starts a new segment, because otherwise entry numbers would occur twice.
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

// countBatch adds a batch to the totals of the segment.
func (s *ringSegment) countBatch(b RingBatch) {
	if s.entryCount == 0 {
		s.oldestBatchTime, s.newestBatchTime = b.NewestEntryTime, b.NewestEntryTime
	}
	s.endOffset += int64(len(b.Body) + batchOverhead)
	s.entryCount += b.EntryCount
	s.oldestBatchTime, s.newestBatchTime = min(s.oldestBatchTime, b.NewestEntryTime), max(s.newestBatchTime,
		b.NewestEntryTime)
}

// endSegment closes the last segment, so that the next batch starts a new one. It ignores close errors, because all
// acknowledged data is already durable.
func (r *RingLog) endSegment() {
	if r.segmentFile != nil {
		_ = r.segmentFile.Close()
		r.segmentFile = nil
	}
}

// Size returns the amount of data in the ring.
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

// NextEntryNumber returns the number of the next entry to be appended.
func (r *RingLog) NextEntryNumber() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nextEntryNumber
}

// Close closes the ring. All appended batches are already durable.
func (r *RingLog) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isClosed = true
	r.endSegment()
	return nil
}

// forgetSegment removes a segment from the list in memory.
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
