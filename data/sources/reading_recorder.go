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
	// ringWriteInterval is how long readings are collected before they are written: a power cut loses no more than
	// those of this time. It makes one write and one fsync each time, 360 an hour, where readings come all the time.
	ringWriteInterval = 10 * time.Second
	// earlyWriteReadingCount is how many readings are written at once, before that time is over.
	earlyWriteReadingCount = 16 << 10
	// maxPendingReadings bounds the readings that wait for a disk that takes nothing; those beyond it are dropped.
	maxPendingReadings = 64 << 10
)

// readingRecorder writes readings to a ring and hands them out from there. What is handed out is durable. Its methods
// may be called concurrently.
type readingRecorder struct {
	env   data.CollectorEnv
	stats *sourceStats

	mu              sync.Mutex
	ring            *store.RingLog // nil until it could be opened
	pendingReadings []data.Reading // not durable yet

	// failedBatch is the batch to append until the ring takes it, because Append must get the same batch again. Its
	// readings are the first pending ones.
	failedBatch    *store.RingBatch
	pendingSignal  chan struct{} // wakes run: something is to be written
	flushSignal    chan struct{} // wakes run at once: many readings are pending
	closeSignal    chan struct{}
	writeLoopEnded chan struct{}

	savedUnusedCount uint64    // number of rejected values at the last write of the counts file
	countsSavedAt    time.Time // time of the last write of the counts file
}

// newReadingRecorder begins to record.
func newReadingRecorder(e data.CollectorEnv, stats *sourceStats) *readingRecorder {
	r := &readingRecorder{env: e, stats: stats, pendingSignal: make(chan struct{}, 1), flushSignal: make(chan struct{},
		1),
		closeSignal: make(chan struct{}), writeLoopEnded: make(chan struct{})}
	stats.onUnusedValue = func() { signalWithoutBlocking(r.pendingSignal) } // run writes the counts file
	flushed := r.flushPending()                                             // opens the ring, on this goroutine
	go r.runWriteLoop(!flushed)
	return r
}

// recordReading records a reading, soon.
func (r *readingRecorder) recordReading(reading data.Reading) {
	r.mu.Lock()
	n := len(r.pendingReadings)
	if n < maxPendingReadings {
		r.pendingReadings = append(r.pendingReadings, reading)
	}
	r.mu.Unlock()
	if n == maxPendingReadings {
		r.stats.countUnusedValue(reading.Input, grid.ReasonNoRoom,
			"the disk cannot be written and the queue of readings is full", "")
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
	default: // one waits already
	}
}

// runWriteLoop writes what is pending, seldom. Readings that a disk did not take, or a ring that it did not give, are
// tried again after the same time.
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
		case <-r.closeSignal: // whatever the disk takes
			r.flushPending()
			return
		}
		again = !r.flushPending()
	}
}

// flushPending writes what is pending, and not what comes meanwhile. It reports whether the disk has taken it.
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

// encodeReadingBatch makes a batch of the first readings.
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

// dropWrittenReadings forgets the first of the readings that were pending, and returns those of todo that still are.
func (r *readingRecorder) dropWrittenReadings(todo []data.Reading, n int) []data.Reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := copy(r.pendingReadings, r.pendingReadings[n:])
	clear(r.pendingReadings[left:])
	r.pendingReadings = r.pendingReadings[:left]
	return r.pendingReadings[:len(todo)-n]
}

// openRing opens the ring, unless it is open. Damage is told, and keeps nothing from working.
func (r *readingRecorder) openRing() (*store.RingLog, error) {
	if ring := r.ringIfOpen(); ring != nil {
		return ring, nil
	}
	ring, found, err := r.env.Disk.OpenRing(r.env.RingFolder, r.env.RingLimits)
	for _, aside := range found.SetAsideErrors {
		r.stats.recordRingDamage(aside)
	}
	if found.CutBytes > 0 {
		r.stats.recordRingDamage(fmt.Errorf("%s: the last write before the power went was torn: %d bytes are cut off",
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

// ringSize is how much is in the ring.
func (r *readingRecorder) ringSize() store.RingSize {
	if ring := r.ringIfOpen(); ring != nil {
		return ring.Size()
	}
	return store.RingSize{}
}

// close writes what is pending, if the disk takes it, and ends.
func (r *readingRecorder) close() error {
	close(r.closeSignal)
	<-r.writeLoopEnded
	if ring := r.ringIfOpen(); ring != nil {
		return ring.Close()
	}
	return nil
}

// newReadingFeed returns a feed that reads the ring from its beginning. It passes on the readings of all inputs; wanted
// are the inputs of the task, which its report covers.
func (r *readingRecorder) newReadingFeed(wanted []string) rows.ReadingFeed {
	return &ringReadingFeed{readingRecorder: r, wantedInputs: wanted}
}

type ringReadingFeed struct {
	*readingRecorder
	wantedInputs     []string
	ringPosition     store.RingPosition
	unusedAtLastRead uint64 // number of rejected values at the last read
	rewindReason     string // why all readings are to be passed on once more
}

// Report implements rows.ReadingFeed.
func (f *ringReadingFeed) QualityReport() data.QualityReport {
	all := data.QualityReport{Troubles: f.stats.currentTroubles(f.wantedInputs)}
	for _, c := range f.stats.columnReports() {
		// without a name, it is of payloads that cannot be read
		if c.Name == "" || slices.Contains(f.wantedInputs, c.Name) {
			all.Columns = append(all.Columns, c)
		}
	}
	return all
}

// DescribePlace implements rows.ReadingFeed.
func (f *ringReadingFeed) DescribeReadingPlace(input string, _ int64) string {
	return f.stats.inputOriginOf(input)
}

func (f *ringReadingFeed) Changed() bool {
	ring := f.ringIfOpen()
	return ring != nil && ring.NextEntryNumber() != f.ringPosition.NextEntryNumber() || f.rewindReason != "" ||
		f.stats.unusedTotal() != f.unusedAtLastRead
}

// Read implements rows.ReadingFeed. Readings that made room were handed out before, or never.
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
