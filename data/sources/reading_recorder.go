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
	// maxBatchReadings is how many readings are written at once, before that time is over.
	maxBatchReadings = 16 << 10
	// pendingMost bounds the readings that wait for a disk that takes nothing; those beyond it are dropped.
	pendingMost = 64 << 10
)

// recorder writes readings to a ring and hands them out from there. What is handed out is durable. Its methods may be
// called concurrently.
type recorder struct {
	env   data.CollectorEnv
	stats *sourceStats

	mu      sync.Mutex
	ring    *store.Ring    // nil until it could be opened
	pending []data.Reading // not durable yet

	// failedBatch is the batch to append until the ring takes it, because Append must get the same batch again. Its
	// readings are the first pending ones.
	failedBatch   *store.RingBatch
	pendingSignal chan struct{} // wakes run: something is to be written
	flushSignal   chan struct{} // wakes run at once: many readings are pending
	closed        chan struct{}
	done          chan struct{}

	savedUnused   uint64    // number of rejected values at the last write of the counts file
	countsSavedAt time.Time // time of the last write of the counts file
}

// newRecorder begins to record.
func newRecorder(e data.CollectorEnv, stats *sourceStats) *recorder {
	r := &recorder{env: e, stats: stats, pendingSignal: make(chan struct{}, 1), flushSignal: make(chan struct{}, 1),
		closed: make(chan struct{}), done: make(chan struct{})}
	stats.onUnused = func() { signal(r.pendingSignal) } // run writes the counts file
	flushed := r.flush()                                // opens the ring, on this goroutine
	go r.run(!flushed)
	return r
}

// put records a reading, soon.
func (r *recorder) put(reading data.Reading) {
	r.mu.Lock()
	n := len(r.pending)
	if n < pendingMost {
		r.pending = append(r.pending, reading)
	}
	r.mu.Unlock()
	if n == pendingMost {
		r.stats.countUnused(reading.Input, grid.Dropped,
			"the disk cannot be written and the queue of readings is full", "")
		return
	}
	signal(r.pendingSignal)
	if n == maxBatchReadings {
		signal(r.flushSignal)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // one waits already
	}
}

// run writes what is pending, seldom. Readings that a disk did not take, or a ring that it did not give, are tried
// again after the same time.
func (r *recorder) run(again bool) {
	defer close(r.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !again {
			select {
			case <-r.pendingSignal:
			case <-r.closed:
				r.flush()
				return
			}
		}
		timer.Reset(ringWriteInterval)
		select {
		case <-timer.C:
		case <-r.flushSignal:
		case <-r.closed: // whatever the disk takes
			r.flush()
			return
		}
		again = !r.flush()
	}
}

// flush writes what is pending, and not what comes meanwhile. It reports whether the disk has taken it.
func (r *recorder) flush() bool {
	ring, err := r.open()
	r.mu.Lock()
	todo := r.pending
	r.mu.Unlock()
	for err == nil && len(todo) > 0 {
		if r.failedBatch == nil {
			r.failedBatch = batchOf(todo, ring)
		}
		if err = ring.Append(*r.failedBatch); err == nil {
			todo = r.dropWritten(todo, r.failedBatch.Entries)
			r.failedBatch = nil
		}
	}
	if err == nil {
		err = r.saveCounts()
	}
	r.stats.setTrouble(data.TroubleStorage, "", err)
	return err == nil
}

// batchOf makes a batch of the first readings.
func batchOf(readings []data.Reading, ring *store.Ring) *store.RingBatch {
	entries, bytes := ring.MaxBatch()
	var e batchEncoder
	for _, reading := range readings {
		if e.count == entries || !e.add(reading, bytes) {
			break
		}
	}
	return &store.RingBatch{Entries: e.count, NewestTime: e.newestTime, Body: e.body}
}

// dropWritten forgets the first of the readings that were pending, and returns those of todo that still are.
func (r *recorder) dropWritten(todo []data.Reading, n int) []data.Reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := copy(r.pending, r.pending[n:])
	clear(r.pending[left:])
	r.pending = r.pending[:left]
	return r.pending[:len(todo)-n]
}

// open opens the ring, unless it is open. Damage is told, and keeps nothing from working.
func (r *recorder) open() (*store.Ring, error) {
	if ring := r.opened(); ring != nil {
		return ring, nil
	}
	ring, found, err := r.env.Disk.OpenRing(r.env.Dir, r.env.RingLimits)
	for _, aside := range found.SetAsideErrors {
		r.stats.damage(aside)
	}
	if found.CutBytes > 0 {
		r.stats.damage(fmt.Errorf("%s: the last write before the power went was torn: %d bytes are cut off", r.env.Dir,
			found.CutBytes))
	}
	if err == nil {
		err = r.removeCounts()
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring = ring
	return ring, nil
}

func (r *recorder) opened() *store.Ring {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ring
}

// size is how much is in the ring.
func (r *recorder) size() store.RingSize {
	if ring := r.opened(); ring != nil {
		return ring.Size()
	}
	return store.RingSize{}
}

// close writes what is pending, if the disk takes it, and ends.
func (r *recorder) close() error {
	close(r.closed)
	<-r.done
	if ring := r.opened(); ring != nil {
		return ring.Close()
	}
	return nil
}

// newFeed returns a feed that reads the ring from its beginning. It passes on the readings of all inputs; wanted are
// the inputs of the task, which its report covers.
func (r *recorder) newFeed(wanted []string) rows.Feed {
	return &ringFeed{recorder: r, wanted: wanted}
}

type ringFeed struct {
	*recorder
	wanted           []string
	place            store.RingPosition
	unusedAtLastRead uint64 // number of rejected values at the last read
	rewindReason     string // why all readings are to be passed on once more
}

// Report implements rows.Feed.
func (f *ringFeed) Report() data.Report {
	all := data.Report{Troubles: f.stats.currentTroubles(f.wanted)}
	for _, c := range f.stats.columnReports() {
		if c.Name == "" || slices.Contains(f.wanted, c.Name) { // without a name, it is of payloads that cannot be read
			all.Columns = append(all.Columns, c)
		}
	}
	return all
}

// Where implements rows.Feed.
func (f *ringFeed) Where(input string, _ int64) string { return f.stats.inputOriginOf(input) }

func (f *ringFeed) Changed() bool {
	ring := f.opened()
	return ring != nil && ring.NextEntryNumber() != f.place.Next() || f.rewindReason != "" ||
		f.stats.unusedTotal() != f.unusedAtLastRead
}

// Read implements rows.Feed. Readings that made room were handed out before, or never.
func (f *ringFeed) Read(restart func(why string), take func(data.Reading) bool) (err error) {
	f.unusedAtLastRead = f.stats.unusedTotal()
	if f.rewindReason != "" {
		restart(f.rewindReason)
		f.place, f.rewindReason = store.RingPosition{}, ""
	}
	ring := f.opened()
	for ring != nil {
		f.place, err = ring.Read(f.place, func(first uint64, b store.RingBatch) {
			if err := decode(b.Body, first, func(r data.Reading) { take(r) }); err != nil {
				f.stats.damage(fmt.Errorf("%s: %w", f.env.Dir, err))
			}
		})
		if damaged := (*store.CorruptError)(nil); !errors.As(err, &damaged) {
			break
		}
		f.stats.damage(err)
	}
	return err
}

// Rewind implements rows.Feed.
func (f *ringFeed) Rewind(why string) { f.rewindReason = why }
