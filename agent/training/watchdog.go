package training

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// stopGrace is how long a training job may go on after it was told to end. It asks between two local steps, and
// before and after it computes the risk over all rows.
const stopGrace = 10 * time.Minute

// watchdog keeps the training jobs that have been told to end and have not.
type watchdog struct {
	mu            sync.Mutex
	cancelledJobs map[*time.Time]struct{}
}

// watch notes a job from the end of ctx until ended is called.
func (w *watchdog) watch(ctx context.Context) (ended func()) {
	var at time.Time
	over := false // guarded by mu
	unwatch := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !over {
			at = time.Now()
			w.cancelledJobs[&at] = struct{}{}
		}
	})
	return func() {
		unwatch()
		w.mu.Lock()
		defer w.mu.Unlock()
		over = true
		delete(w.cancelledJobs, &at)
	}
}

// check reports a job that has gone on for too long.
func (w *watchdog) check(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at := range w.cancelledJobs {
		if since := now.Sub(*at); since > stopGrace {
			return fmt.Errorf("agent: a training job was told to end %s ago and goes on", since.Round(time.Second))
		}
	}
	return nil
}
