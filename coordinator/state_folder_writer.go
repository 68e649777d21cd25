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
type stateFolderWriter struct {
	loop     *host.EventLoop
	observer observe.Observer
	// onDiskFullDelay is called after a full disk has held up the owner since a time, before any event that would find
	// the round's deadline passed.
	onDiskFullDelay func(since time.Time)

	writeQueue         *host.SerialJobQueue // writes lines of the history and archived models, before the next journal
	removalQueue       *host.SerialJobQueue // removes old models and spools
	prunedBelowVersion uint64               // models below this version are removed; 0 = none since the start

	writeFailures host.WriteFailures

	mu                 sync.Mutex
	queuedWriteResults []writeResult // of the queue
}

type writeResult struct {
	purpose string
	err     error
}

// folderRetryInterval is the time after which a write that failed is tried again.
const folderRetryInterval = 5 * time.Second

// newStateFolderWriter makes them without jobs.
func newStateFolderWriter(loop *host.EventLoop, o observe.Observer, onDelay func(since time.Time)) *stateFolderWriter {
	return &stateFolderWriter{loop: loop, observer: o, onDiskFullDelay: onDelay,
		writeQueue:   host.NewSerialJobQueue(loop),
		removalQueue: host.NewSerialJobQueue(loop)}
}

// writeBeforeContinuing performs a write that must be on disk before anything else happens: a full disk blocks the
// round until space is freed. The time that this takes does not count for the round. The error is that the coordinator
// stops before.
func (j *stateFolderWriter) writeBeforeContinuing(purpose string, do func() error) error {
	var since time.Time
	err := j.retryWrite(do, j.loop.PauseLoop,
		func(err error) { // the owner shows that it is alive: a restart would not make room
			if since.IsZero() {
				since = j.loop.Now()
			}
			j.reportWriteResult(purpose, err)
		})
	if err == nil && !since.IsZero() {
		j.onDiskFullDelay(since)
	}
	return err
}

// writeInJob performs a write in a job beside the owner. The error is that the coordinator stops before.
func (j *stateFolderWriter) writeInJob(purpose string, do func() error) error {
	return j.retryWrite(do, j.loop.PauseJob, func(err error) {
		j.loop.RunOnLoop(func() { j.reportWriteResult(purpose, err) })
	})
}

// enqueueWrite has a write performed beside the owner, before the next journal.
func (j *stateFolderWriter) enqueueWrite(purpose string, do func() error) {
	j.writeQueue.Enqueue(func() {
		_ = j.retryWrite(do, j.loop.PauseJob, func(err error) { // an error means that the coordinator stops
			j.mu.Lock()
			defer j.mu.Unlock()
			j.queuedWriteResults = append(j.queuedWriteResults, writeResult{purpose, err})
			j.loop.Wake()
		})
	})
}

// awaitQueuedWrites waits until the queued writes are done. The time during which the disk is full does not count for
// the round.
func (j *stateFolderWriter) awaitQueuedWrites() error {
	began := j.loop.Now()
	err := j.loop.WaitUntil(func() bool {
		j.reportQueuedResults()
		return j.writeQueue.IsIdle()
	})
	if err == nil && j.loop.Now().Sub(began) >= folderRetryInterval {
		j.onDiskFullDelay(began)
	}
	return err
}

// reportQueuedResults reports the failures and successes of queued writes since the last call.
func (j *stateFolderWriter) reportQueuedResults() {
	j.mu.Lock()
	results := j.queuedWriteResults
	j.queuedWriteResults = nil
	j.mu.Unlock()
	for _, r := range results {
		j.reportWriteResult(r.purpose, r.err)
	}
}

// retryWrite tries a write until it succeeds, or the coordinator stops. note is called with each failure, and with the
// success after one.
func (j *stateFolderWriter) retryWrite(do func() error, pause func(time.Duration) error, note func(error)) error {
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

// reportWriteResult records the result of a write. It reports an event when writes begin to fail, and when all succeed
// again.
func (j *stateFolderWriter) reportWriteResult(purpose string, err error) {
	j.writeFailures.QualityReport(j.observer, purpose, err)
}

// pruneModels has models removed that are too old, once the newest is in the archive: for each version, and once after
// a start, since a power cut may restore removed files. It keeps the newest models, the newest of each of the last
// hours, and the versions in spare. keep is 0 if all models are kept.
func (j *stateFolderWriter) pruneModels(models *store.ModelFolder, version uint64, keep, hours int, spare []uint64,
	log *slog.Logger) {
	if keep == 0 || j.prunedBelowVersion == version+1 {
		return
	}
	j.prunedBelowVersion = version + 1
	j.writeQueue.Enqueue(func() {
		j.removalQueue.Enqueue(func() {
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
