package coordinator

import (
	"log/slog"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
)

// folderJobs writes to the state folder and removes old files from it. It repeats a write that fails, until the
// coordinator stops.
type folderJobs struct {
	loop     *host.EventLoop
	observer observe.Observer
	// onDelay is called after a full disk has held up the owner since a time, before any event that would find the
	// round's deadline passed.
	onDelay func(since time.Time)

	queue              *host.SerialJobQueue // writes lines of the history and archived models, before the next journal
	removals           *host.SerialJobQueue // removes old models and spools
	prunedBelowVersion uint64               // models below this version are removed; 0 = none since the start

	failures host.WriteFailures

	mu      sync.Mutex
	results []writeResult // of the queue
}

type writeResult struct {
	purpose string
	err     error
}

// folderRetryInterval is the time after which a write that failed is tried again.
const folderRetryInterval = 5 * time.Second

// newFolderJobs makes them without jobs.
func newFolderJobs(loop *host.EventLoop, o observe.Observer, onDelay func(since time.Time)) *folderJobs {
	return &folderJobs{loop: loop, observer: o, onDelay: onDelay, queue: host.NewSerialJobQueue(loop),
		removals: host.NewSerialJobQueue(loop)}
}

// write performs a write that must be on disk before anything else happens: a full disk blocks the round until space is
// freed. The time that this takes does not count for the round. The error is that the coordinator stops before.
func (j *folderJobs) write(purpose string, do func() error) error {
	var since time.Time
	err := j.retry(do, j.loop.Pause,
		func(err error) { // the owner shows that it is alive: a restart would not make room
			if since.IsZero() {
				since = j.loop.Now()
			}
			j.report(purpose, err)
		})
	if err == nil && !since.IsZero() {
		j.onDelay(since)
	}
	return err
}

// writeInJob performs a write in a job beside the owner. The error is that the coordinator stops before.
func (j *folderJobs) writeInJob(purpose string, do func() error) error {
	return j.retry(do, j.loop.PauseJob, func(err error) {
		j.loop.RunOnLoop(func() { j.report(purpose, err) })
	})
}

// enqueue has a write performed beside the owner, before the next journal.
func (j *folderJobs) enqueue(purpose string, do func() error) {
	j.queue.Enqueue(func() {
		_ = j.retry(do, j.loop.PauseJob, func(err error) { // an error means that the coordinator stops
			j.mu.Lock()
			defer j.mu.Unlock()
			j.results = append(j.results, writeResult{purpose, err})
			j.loop.Wake()
		})
	})
}

// awaitQueue waits until the queued writes are done. The time during which the disk is full does not count for the
// round.
func (j *folderJobs) awaitQueue() error {
	began := j.loop.Now()
	err := j.loop.WaitFor(func() bool {
		j.reportQueue()
		return j.queue.Idle()
	})
	if err == nil && j.loop.Now().Sub(began) >= folderRetryInterval {
		j.onDelay(began)
	}
	return err
}

// reportQueue reports the failures and successes of queued writes since the last call.
func (j *folderJobs) reportQueue() {
	j.mu.Lock()
	results := j.results
	j.results = nil
	j.mu.Unlock()
	for _, r := range results {
		j.report(r.purpose, r.err)
	}
}

// retry tries a write until it succeeds, or the coordinator stops. note is called with each failure, and with the
// success after one.
func (j *folderJobs) retry(do func() error, pause func(time.Duration) error, note func(error)) error {
	for failed := false; ; failed = true {
		err := do()
		if err != nil || failed {
			note(err)
		}
		if err == nil {
			return nil
		}
		if err := pause(folderRetryInterval); err != nil {
			return err
		}
	}
}

// report records the result of a write. It reports an event when writes begin to fail, and when all succeed again.
func (j *folderJobs) report(purpose string, err error) { j.failures.Report(j.observer, purpose, err) }

// prune has models removed that are too old, once the newest is in the archive: for each version, and once after a
// start, since a power cut may restore removed files. It keeps the newest models, the newest of each of the last hours,
// and the versions in spare. keep is 0 if all models are kept.
func (j *folderJobs) prune(models *store.ModelFolder, version uint64, keep, hours int, spare []uint64,
	log *slog.Logger) {
	if keep == 0 || j.prunedBelowVersion == version+1 {
		return
	}
	j.prunedBelowVersion = version + 1
	j.queue.Enqueue(func() {
		j.removals.Enqueue(func() {
			var hourly []uint64
			var err error
			if hours > 0 {
				hourly, err = models.NewestVersionPerHour(hours)
			}
			if err == nil {
				err = models.Prune(keep, version, append(hourly, spare...)...)
			}
			if err != nil {
				log.Warn("old models are left behind; the next round removes them", "err", err)
			}
		})
	})
}
