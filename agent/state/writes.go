package state

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
)

// retryInterval is the time after which a write that failed is tried again.
const retryInterval = 5 * time.Second

// Writes are the writes to the state folder that failed and are tried again. Each has a purpose, which people see while
// the write fails; a later write for the same purpose takes its place. All methods are called on the owner's goroutine.
type Writes struct {
	Loop     *host.EventLoop
	Observer observe.Observer

	failures host.WriteFailures
	failed   []Write
	retryAt  time.Time
}

// Write is one write.
type Write struct {
	Purpose string
	Do      func() error
	Done    func() // follows once the write has succeeded; may be nil
}

// Run writes now. The error is that of the first attempt.
func (w *Writes) Run(write Write) error {
	err := write.Do()
	w.Finish(write, err)
	return err
}

// Start writes beside the owner.
func (w *Writes) Start(write Write) {
	w.Loop.Go(func() {
		err := write.Do()
		w.Loop.RunOnLoop(func() { w.Finish(write, err) })
	})
}

// Finish takes the result of a write.
func (w *Writes) Finish(write Write, err error) {
	w.Forget(write.Purpose)
	w.Report(write.Purpose, err)
	switch {
	case err != nil:
		if len(w.failed) == 0 {
			w.retryAt = w.Loop.Now().Add(retryInterval)
		}
		w.failed = append(w.failed, write)
	case write.Done != nil:
		write.Done()
	}
}

// Abandon gives up a write that is no longer needed.
func (w *Writes) Abandon(purpose string) { w.Finish(Write{Purpose: purpose}, nil) }

// Forget abandons a pending write because a newer one for the same purpose has begun. The purpose is reported as
// failing until the newer write succeeds.
func (w *Writes) Forget(purpose string) {
	w.failed = slices.DeleteFunc(w.failed, func(other Write) bool { return other.Purpose == purpose })
}

// IsFailing reports whether a write waits for another attempt.
func (w *Writes) IsFailing(purpose string) bool {
	return slices.ContainsFunc(w.failed, func(other Write) bool { return other.Purpose == purpose })
}

// Report reports an event when writes to the state folder begin to fail, and when they succeed again. It is for writes
// that are repeated elsewhere.
func (w *Writes) Report(purpose string, err error) { w.failures.Report(w.Observer, purpose, err) }

// Deadline returns when failed writes are tried again.
func (w *Writes) Deadline() (time.Time, bool) { return w.retryAt, len(w.failed) > 0 }

// Tick tries again what failed.
func (w *Writes) Tick(now time.Time) {
	if len(w.failed) == 0 || now.Before(w.retryAt) {
		return
	}
	w.retryAt = now.Add(retryInterval)
	for _, write := range slices.Clone(w.failed) {
		if w.IsFailing(write.Purpose) { // what another write's Done has not given up
			w.Finish(write, write.Do())
		}
	}
}
