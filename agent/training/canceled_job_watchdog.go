package training

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// stopGrace is the time within which a cancelled training job must end. Jobs check for cancellation between local steps
// and around each risk computation.
const stopGrace = 10 * time.Minute

// canceledJobWatchdog tracks training jobs that were cancelled but have not ended.
type canceledJobWatchdog struct {
	mu                sync.Mutex
	cancellationTimes map[*time.Time]struct{} // set of pointers to the cancellation times of running jobs
}

// watchJob starts tracking a job with the context ctx. The job must call ended when it ends.
func (w *canceledJobWatchdog) watchJob(ctx context.Context) (ended func()) {
	var at time.Time
	over := false // true after the job has ended; the mutex mu guards it
	unwatch := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !over {
			at = time.Now()
			w.cancellationTimes[&at] = struct{}{}
		}
	})
	return func() {
		unwatch()
		w.mu.Lock()
		defer w.mu.Unlock()
		over = true
		delete(w.cancellationTimes, &at)
	}
}

// checkStuckJobs returns an error if a job is still running more than stopGrace after its cancellation.
func (w *canceledJobWatchdog) checkStuckJobs(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at := range w.cancellationTimes {
		if since := now.Sub(*at); since > stopGrace {
			return fmt.Errorf("agent: a training job is still running %s after it was cancelled",
				since.Round(time.Second))
		}
	}
	return nil
}
