package agent

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// mercy is how long a training job may go on after it was told to end. It asks between two local steps, and before and
// after it computes the risk over all rows.
const mercy = 10 * time.Minute

// stubborn keeps the training jobs that have been told to end and have not.
type stubborn struct {
	mu   sync.Mutex
	told map[*time.Time]struct{}
}

// watch has a job known from when ctx ends until ended is called.
func (s *stubborn) watch(ctx context.Context) (ended func()) {
	var at time.Time
	over := false // guarded by mu
	unwatch := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !over {
			at = time.Now()
			s.told[&at] = struct{}{}
		}
	})
	return func() {
		unwatch()
		s.mu.Lock()
		defer s.mu.Unlock()
		over = true
		delete(s.told, &at)
	}
}

// check reports a job that has gone on for too long.
func (s *stubborn) check(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.told {
		if since := now.Sub(*at); since > mercy {
			return fmt.Errorf("agent: a training job was told to end %s ago and goes on", since.Round(time.Second))
		}
	}
	return nil
}
