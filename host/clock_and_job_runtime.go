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
	// WithDeadline is like context.WithDeadline, with the clock of this runtime.
	WithDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc)
}

// JobWaiter blocks one job until an event, a call of Wake or a timeout. Jobs must not block in any other way.
type JobWaiter interface {
	// Wait blocks until Wake is called (also since the previous Wait), an event arrives, the time until is reached
	// (zero means no timeout) or ctx ends, but it may also return earlier. e is nil unless an event arrived, open is
	// false if events is closed, and events may be nil.
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
	timer      *time.Timer // created by the first wait with a timeout
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
