package host

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// JobRuntime provides the clock and starts jobs. RealTimeRuntime is used in production, and package lab/world provides
// simulated time.
type JobRuntime interface {
	Now() time.Time
	// Go runs job concurrently with its caller.
	Go(job func())
	NewWaiter() JobWaiter
	// WithDeadline is like context.WithDeadline, but uses the clock of this runtime.
	WithDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc)
}

// JobWaiter blocks a job until an event arrives, Wake is called, or a timeout expires. Jobs must not block in any other
// way.
type JobWaiter interface {
	// Wait blocks until one of the following happens: Wake is called (or was called since the previous Wait), an event
	// arrives, the time until is reached, or ctx ends. It may also return earlier. A zero until means no timeout, and
	// events may be nil. The result e is nil unless an event has arrived, and open is false if the channel events is
	// closed.
	Wait(ctx context.Context, until time.Time, events <-chan mqtt.Event) (e mqtt.Event, open bool)
	// Wake makes the current or the next Wait return. It never blocks.
	Wake()
}

// RealTimeRuntime implements JobRuntime with the system clock and goroutines.
type RealTimeRuntime struct{}

// Now implements JobRuntime.
func (RealTimeRuntime) Now() time.Time { return time.Now() }

// Go implements JobRuntime.
func (RealTimeRuntime) Go(job func()) { go job() }

// WithDeadline implements JobRuntime.
func (RealTimeRuntime) WithDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, at)
}

// NewWaiter implements JobRuntime.
func (RealTimeRuntime) NewWaiter() JobWaiter {
	return &realTimeWaiter{wakeSignal: make(chan struct{}, 1)}
}

type realTimeWaiter struct {
	wakeSignal chan struct{}
	timer      *time.Timer // timer that the first wait with a timeout creates
}

func (w *realTimeWaiter) Wake() {
	select {
	case w.wakeSignal <- struct{}{}:
	default:
	}
}

func (w *realTimeWaiter) Wait(ctx context.Context, until time.Time, events <-chan mqtt.Event) (mqtt.Event, bool) {
	var over <-chan time.Time
	if !until.IsZero() {
		left := time.Until(until)
		if w.timer == nil {
			w.timer = time.NewTimer(left)
		} else {
			w.timer.Reset(left)
		}
		defer w.timer.Stop()
		over = w.timer.C
	}
	select {
	case <-ctx.Done():
	case <-w.wakeSignal:
	case <-over:
	case e, open := <-events:
		return e, open
	}
	return nil, true
}
