package sources

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/store"
)

const (
	// ringWriteInterval is the time for which readings are collected in memory before they are written to the ring. A
	// power cut loses at most these readings. Continuous readings cause 360 writes and fsyncs per hour.
	ringWriteInterval = 10 * time.Second
	// earlyWriteReadingCount is the number of pending readings that causes a write before the interval has passed.
	earlyWriteReadingCount = 16 << 10
	// maxPendingReadings is the maximum number of readings that wait for a failing disk. Further readings are dropped.
	maxPendingReadings = 64 << 10
)

// readingRecorder writes readings to a ring on disk and passes on only readings that it has read from the ring, so that
// all readings passed on are durable. Its methods may be called concurrently.
type readingRecorder struct {
	env   data.CollectorEnv
	stats *sourceStats

	mu              sync.Mutex
	ring            *store.RingLog // nil until the ring has been opened
	pendingReadings []data.Reading // readings that are not durable yet

	// failedBatch is a batch that the ring has not accepted. Append must be retried with exactly this batch. Its
	// readings are the first of pendingReadings.
	failedBatch    *store.RingBatch
	pendingSignal  chan struct{} // wakes the write loop after the interval
	flushSignal    chan struct{} // wakes the write loop immediately
	closeSignal    chan struct{}
	writeLoopEnded chan struct{}

	savedUnusedCount uint64    // number of rejected values when the counts file was last written
	countsSavedAt    time.Time // time when the counts file was last written
}

// newReadingRecorder returns a recorder and starts its write loop.
func newReadingRecorder(e data.CollectorEnv, stats *sourceStats) *readingRecorder {
	r := &readingRecorder{env: e, stats: stats, pendingSignal: make(chan struct{}, 1), flushSignal: make(chan struct{},
		1),
		closeSignal: make(chan struct{}), writeLoopEnded: make(chan struct{})}
	// Make the write loop write the counts file after a value was rejected.
	stats.onUnusedValue = func() { signalWithoutBlocking(r.pendingSignal) }
	flushed := r.flushPending() // the first call opens the ring on this goroutine
	go r.runWriteLoop(!flushed)
	return r
}

// recordReading queues a reading for the next write.
func (r *readingRecorder) recordReading(reading data.Reading) {
	r.mu.Lock()
	n := len(r.pendingReadings)
	if n < maxPendingReadings {
		r.pendingReadings = append(r.pendingReadings, reading)
	}
	r.mu.Unlock()
	if n == maxPendingReadings {
		r.stats.countUnusedValue(reading.Input, grid.ReasonNoRoom,
			"reading dropped: the disk is not writable, and the queue of readings is full", "")
		return
	}
	signalWithoutBlocking(r.pendingSignal)
	if n == earlyWriteReadingCount {
		signalWithoutBlocking(r.flushSignal)
	}
}

func signalWithoutBlocking(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // a signal is already pending
	}
}

// runWriteLoop writes the pending readings at intervals. A failed write, or a failure to open the ring, is retried
// after the same interval.
func (r *readingRecorder) runWriteLoop(again bool) {
	defer close(r.writeLoopEnded)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !again {
			select {
			case <-r.pendingSignal:
			case <-r.closeSignal:
				r.flushPending()
				return
			}
		}
		timer.Reset(ringWriteInterval)
		select {
		case <-timer.C:
		case <-r.flushSignal:
		case <-r.closeSignal: // make one last attempt to write the pending readings
			r.flushPending()
			return
		}
		again = !r.flushPending()
	}
}

// flushPending writes the readings that are pending at the time of the call. It reports whether all these readings were
// written.
func (r *readingRecorder) flushPending() bool {
	ring, err := r.openRing()
	r.mu.Lock()
	todo := r.pendingReadings
	r.mu.Unlock()
	for err == nil && len(todo) > 0 {
		if r.failedBatch == nil {
			r.failedBatch = encodeReadingBatch(todo, ring)
		}
		if err = ring.Append(*r.failedBatch); err == nil {
			todo = r.dropWrittenReadings(todo, r.failedBatch.EntryCount)
			r.failedBatch = nil
		}
	}
	if err == nil {
		err = r.saveInputCounts()
	}
	r.stats.setTrouble(data.TroubleStorage, "", err)
	return err == nil
}

// encodeReadingBatch encodes the first readings into one batch, as many as fit.
func encodeReadingBatch(readings []data.Reading, ring *store.RingLog) *store.RingBatch {
	entries, bytes := ring.MaxBatchSize()
	var e readingBatchEncoder
	for _, reading := range readings {
		if e.readingCount == entries || !e.addReading(reading, bytes) {
			break
		}
	}
	return &store.RingBatch{EntryCount: e.readingCount, NewestEntryTime: e.newestTime, Body: e.body}
}

// dropWrittenReadings removes the first n pending readings. It returns the remaining part of todo.
func (r *readingRecorder) dropWrittenReadings(todo []data.Reading, n int) []data.Reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := copy(r.pendingReadings, r.pendingReadings[n:])
	clear(r.pendingReadings[left:])
	r.pendingReadings = r.pendingReadings[:left]
	return r.pendingReadings[:len(todo)-n]
}

// openRing opens the ring unless it is open. Damage is reported, and the recorder continues.
func (r *readingRecorder) openRing() (*store.RingLog, error) {
	if ring := r.ringIfOpen(); ring != nil {
		return ring, nil
	}
	ring, found, err := r.env.Disk.OpenRing(r.env.RingFolder, r.env.RingLimits)
	for _, aside := range found.SetAsideErrors {
		r.stats.recordRingDamage(aside)
	}
	if found.CutBytes > 0 {
		r.stats.recordRingDamage(fmt.Errorf(
			"%s: the last write was interrupted by a power cut: removed %d incomplete bytes",
			r.env.RingFolder,
			found.CutBytes))
	}
	if err == nil {
		err = r.removeCountsFile()
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring = ring
	return ring, nil
}

func (r *readingRecorder) ringIfOpen() *store.RingLog {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ring
}

// ringSize returns the amount of data in the ring.
func (r *readingRecorder) ringSize() store.RingSize {
	if ring := r.ringIfOpen(); ring != nil {
		return ring.Size()
	}
	return store.RingSize{}
}

// close tries to write the pending readings, and then stops the recorder.
func (r *readingRecorder) close() error {
	close(r.closeSignal)
	<-r.writeLoopEnded
	if ring := r.ringIfOpen(); ring != nil {
		return ring.Close()
	}
	return nil
}

// newReadingFeed returns a feed that reads the ring from the start. The feed passes on the readings of all inputs, but
// its report covers only the wanted inputs.
func (r *readingRecorder) newReadingFeed(wanted []string) rows.ReadingFeed {
	return &ringReadingFeed{readingRecorder: r, wantedInputs: wanted}
}

type ringReadingFeed struct {
	*readingRecorder
	wantedInputs     []string
	ringPosition     store.RingPosition
	unusedAtLastRead uint64 // number of rejected values at the last read
	rewindReason     string // reason for passing on all readings again; empty if not required
}

// QualityReport implements data.QualityReporter.
func (f *ringReadingFeed) QualityReport() data.QualityReport {
	all := data.QualityReport{Troubles: f.stats.currentTroubles(f.wantedInputs)}
	for _, c := range f.stats.columnReports() {
		// The entry with the empty name counts payloads that cannot be parsed.
		if c.Name == "" || slices.Contains(f.wantedInputs, c.Name) {
			all.Columns = append(all.Columns, c)
		}
	}
	return all
}

// DescribeReadingPlace implements rows.ReadingFeed.
func (f *ringReadingFeed) DescribeReadingPlace(input string, _ int64) string {
	return f.stats.inputOriginOf(input)
}

func (f *ringReadingFeed) Changed() bool {
	ring := f.ringIfOpen()
	return ring != nil && ring.NextEntryNumber() != f.ringPosition.NextEntryNumber() || f.rewindReason != "" ||
		f.stats.unusedTotal() != f.unusedAtLastRead
}

// Read implements rows.ReadingFeed. Readings that the ring has removed are skipped.
func (f *ringReadingFeed) Read(restart func(why string), take func(data.Reading) bool) (err error) {
	f.unusedAtLastRead = f.stats.unusedTotal()
	if f.rewindReason != "" {
		restart(f.rewindReason)
		f.ringPosition, f.rewindReason = store.RingPosition{}, ""
	}
	ring := f.ringIfOpen()
	for ring != nil {
		f.ringPosition, err = ring.ReadBatches(f.ringPosition, func(first uint64, b store.RingBatch) {
			if err := decodeReadingBatch(b.Body, first, func(r data.Reading) { take(r) }); err != nil {
				f.stats.recordRingDamage(fmt.Errorf("%s: %w", f.env.RingFolder, err))
			}
		})
		if damaged := (*store.CorruptError)(nil); !errors.As(err, &damaged) {
			break
		}
		f.stats.recordRingDamage(err)
	}
	return err
}

// Rewind implements rows.ReadingFeed.
func (f *ringReadingFeed) Rewind(why string) { f.rewindReason = why }
