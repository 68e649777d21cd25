package state

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
)

// retryInterval is the time after which a write that failed is tried again.
const retryInterval = 5 * time.Second

// WriteRetrier are the writes to the state folder that failed and are tried again. Each has a purpose, which people see
// while the write fails; a later write for the same purpose takes its place. All methods are called on the owner's
// goroutine.
type WriteRetrier struct {
	Loop     *host.EventLoop
	Observer observe.Observer

	failures     host.WriteFailures
	failedWrites []RetriedWrite
	retryAt      time.Time
}

// RetriedWrite is one write.
type RetriedWrite struct {
	Purpose   string
	WriteFile func() error
	OnSuccess func() // follows once the write has succeeded; may be nil
}

// RunWrite writes now. The error is that of the first attempt.
func (w *WriteRetrier) RunWrite(write RetriedWrite) error {
	err := write.WriteFile()
	w.FinishWrite(write, err)
	return err
}

// StartWrite writes beside the owner.
func (w *WriteRetrier) StartWrite(write RetriedWrite) {
	w.Loop.Go(func() {
		err := write.WriteFile()
		w.Loop.RunOnLoop(func() { w.FinishWrite(write, err) })
	})
}

// FinishWrite takes the result of a write.
func (w *WriteRetrier) FinishWrite(write RetriedWrite, err error) {
	w.ForgetFailedWrite(write.Purpose)
	w.QualityReport(write.Purpose, err)
	switch {
	case err != nil:
		if len(w.failedWrites) == 0 {
			w.retryAt = w.Loop.Now().Add(retryInterval)
		}
		w.failedWrites = append(w.failedWrites, write)
	case write.OnSuccess != nil:
		write.OnSuccess()
	}
}

// AbandonWrite gives up a write that is no longer needed.
func (w *WriteRetrier) AbandonWrite(purpose string) {
	w.FinishWrite(RetriedWrite{Purpose: purpose}, nil)
}

// ForgetFailedWrite abandons a pending write because a newer one for the same purpose has begun. The purpose is
// reported as failing until the newer write succeeds.
func (w *WriteRetrier) ForgetFailedWrite(purpose string) {
	w.failedWrites = slices.DeleteFunc(w.failedWrites,
		func(other RetriedWrite) bool { return other.Purpose == purpose })
}

// IsWriteFailing reports whether a write waits for another attempt.
func (w *WriteRetrier) IsWriteFailing(purpose string) bool {
	return slices.ContainsFunc(w.failedWrites, func(other RetriedWrite) bool { return other.Purpose == purpose })
}

// ReportWriteResult reports an event when writes to the state folder begin to fail, and when they succeed again. It is
// for writes that are repeated elsewhere.
func (w *WriteRetrier) QualityReport(purpose string, err error) {
	w.failures.QualityReport(w.Observer, purpose, err)
}

// Deadline returns when failed writes are tried again.
func (w *WriteRetrier) Deadline() (time.Time, bool) { return w.retryAt, len(w.failedWrites) > 0 }

// Tick tries again what failed.
func (w *WriteRetrier) Tick(now time.Time) {
	if len(w.failedWrites) == 0 || now.Before(w.retryAt) {
		return
	}
	w.retryAt = now.Add(retryInterval)
	for _, write := range slices.Clone(w.failedWrites) {
		if w.IsWriteFailing(write.Purpose) { // what another write's OnSuccess has not given up
			w.FinishWrite(write, write.WriteFile())
		}
	}
}
