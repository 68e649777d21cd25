package coordinator

import (
	"log/slog"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
)

// stateFolderWriter writes to the state folder and removes old files. It retries failed writes until the coordinator
// stops.
type stateFolderWriter struct {
	loop     *host.EventLoop
	observer observe.Observer
	// onDiskFullDelay is called after a full disk has blocked the owner goroutine since the given time. It is called
	// before the round's deadline is checked.
	onDiskFullDelay func(since time.Time)

	writeQueue         *host.SerialJobQueue // queued history lines and archived models, written before the next journal
	removalQueue       *host.SerialJobQueue // queued removals of old models and spools
	prunedBelowVersion uint64               // newest pruned version + 1; 0 before the first pruning

	writeFailures host.WriteFailures

	mu                 sync.Mutex
	queuedWriteResults []writeResult // results of writes in writeQueue
}

type writeResult struct {
	purpose string
	err     error
}

// folderRetryInterval is the delay before a failed write is retried.
const folderRetryInterval = 5 * time.Second

// newStateFolderWriter returns a writer with empty queues.
func newStateFolderWriter(loop *host.EventLoop, o observe.Observer, onDelay func(since time.Time)) *stateFolderWriter {
	return &stateFolderWriter{loop: loop, observer: o, onDiskFullDelay: onDelay,
		writeQueue:   host.NewSerialJobQueue(loop),
		removalQueue: host.NewSerialJobQueue(loop)}
}

// writeBeforeContinuing performs a write that must be on disk before the coordinator continues. On a full disk it
// blocks until space is freed, and the round's deadline is postponed. It returns an error only if the coordinator stops
// first.
func (j *stateFolderWriter) writeBeforeContinuing(purpose string, do func() error) error {
	var since time.Time
	err := j.retryWrite(do, j.loop.PauseLoop,
		func(err error) { // a wait for disk space is not reported as a hang, because a restart would not free space
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

// writeInJob performs a write within a background job and retries it. It returns an error only if the coordinator stops
// first.
func (j *stateFolderWriter) writeInJob(purpose string, do func() error) error {
	return j.retryWrite(do, j.loop.PauseJob, func(err error) {
		j.loop.RunOnLoop(func() { j.reportWriteResult(purpose, err) })
	})
}

// enqueueWrite queues a write for a separate goroutine. The write completes before the next journal is written.
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

// awaitQueuedWrites waits until all queued writes are done. If this takes long, the round's deadline is postponed.
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

// reportQueuedResults reports the results of queued writes since the last call.
func (j *stateFolderWriter) reportQueuedResults() {
	j.mu.Lock()
	results := j.queuedWriteResults
	j.queuedWriteResults = nil
	j.mu.Unlock()
	for _, r := range results {
		j.reportWriteResult(r.purpose, r.err)
	}
}

// retryWrite calls do until it succeeds or pause returns an error because the coordinator stops. It calls note after
// each failure, and after a success that follows a failure.
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

// reportWriteResult records the result of a write. It reports an event when writes begin to fail and when all succeed
// again.
func (j *stateFolderWriter) reportWriteResult(purpose string, err error) {
	j.writeFailures.ReportWriteResult(j.observer, purpose, err)
}

// pruneModels queues the removal of old models after pending archive writes, once per model version and once after a
// start. It keeps the newest keep models, the newest model of each recent hour, and the versions in spare. If keep is
// 0, it removes nothing.
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
				log.Warn("cannot remove old models; retrying in the next round", "err", err)
			}
		})
	})
}
