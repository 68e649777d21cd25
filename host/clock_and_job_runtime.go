package host

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// JobRuntime is the time in which a program lives, and what runs its jobs. RealTimeRuntime is the one of the programs;
// package lab/world has another, in which nothing happens at once and no time passes but by plan.
type JobRuntime interface {
	Now() time.Time
	// Go runs a job beside its caller.
	Go(job func())
	NewWaiter() JobWaiter
	// WithDeadline is context.WithDeadline in this time.
	WithDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc)
}

// JobWaiter is how one job waits, at a time. It is all that blocks in a program.
type JobWaiter interface {
	// Wait returns when Wake has been called since the last Wait, when an event comes, at the moment until if that is
	// not zero, and when ctx ends, whichever is first; it may return without a reason. The event is nil in all other
	// cases; open is false when events is closed. events may be nil.
	Wait(ctx context.Context, until time.Time, events <-chan mqtt.Event) (e mqtt.Event, open bool)
	// Wake never blocks.
	Wake()
}

// RealTimeRuntime is the clock of the machine, and its goroutines.
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
	timer      *time.Timer // nil before the first wait that has an end
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
