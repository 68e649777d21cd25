package state

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
)

// retryInterval is the delay before a failed write is retried.
const retryInterval = 5 * time.Second

// WriteRetrier retries failed writes to the state folder. All methods must be called on the event loop. Each write has
// a purpose, a text that operators see while the write fails. A later write with the same purpose replaces an earlier
// write.
type WriteRetrier struct {
	Loop     *host.EventLoop
	Observer observe.Observer

	failures     host.WriteFailures
	failedWrites []RetriedWrite
	retryAt      time.Time
}

// RetriedWrite is a file write that is retried until it succeeds.
type RetriedWrite struct {
	Purpose   string
	WriteFile func() error
	OnSuccess func() // called after the write has succeeded; may be nil
}

// RunWrite runs a write synchronously and schedules a retry if it fails. It returns the error of the first attempt.
func (w *WriteRetrier) RunWrite(write RetriedWrite) error {
	err := write.WriteFile()
	w.FinishWrite(write, err)
	return err
}

// StartWrite runs a write in a background job and schedules a retry if it fails.
func (w *WriteRetrier) StartWrite(write RetriedWrite) {
	w.Loop.Go(func() {
		err := write.WriteFile()
		w.Loop.RunOnLoop(func() { w.FinishWrite(write, err) })
	})
}

// FinishWrite records the result of a write and schedules a retry if it has failed.
func (w *WriteRetrier) FinishWrite(write RetriedWrite, err error) {
	w.ForgetFailedWrite(write.Purpose)
	w.ReportWriteResult(write.Purpose, err)
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

// AbandonWrite cancels the retries of a write that is no longer needed.
func (w *WriteRetrier) AbandonWrite(purpose string) {
	w.FinishWrite(RetriedWrite{Purpose: purpose}, nil)
}

// ForgetFailedWrite cancels the retries of a write because a newer write with the same purpose has begun. The operator
// still sees the failure until the newer write succeeds.
func (w *WriteRetrier) ForgetFailedWrite(purpose string) {
	w.failedWrites = slices.DeleteFunc(w.failedWrites,
		func(other RetriedWrite) bool { return other.Purpose == purpose })
}

// IsWriteFailing reports whether a write with this purpose is waiting for a retry.
func (w *WriteRetrier) IsWriteFailing(purpose string) bool {
	return slices.ContainsFunc(w.failedWrites, func(other RetriedWrite) bool { return other.Purpose == purpose })
}

// ReportWriteResult reports an event when writes with this purpose start to fail or succeed again. It is used for
// writes that are retried elsewhere.
func (w *WriteRetrier) ReportWriteResult(purpose string, err error) {
	w.failures.ReportWriteResult(w.Observer, purpose, err)
}

// Deadline returns the time of the next retry.
func (w *WriteRetrier) Deadline() (time.Time, bool) { return w.retryAt, len(w.failedWrites) > 0 }

// Tick retries failed writes that are due.
func (w *WriteRetrier) Tick(now time.Time) {
	if len(w.failedWrites) == 0 || now.Before(w.retryAt) {
		return
	}
	w.retryAt = now.Add(retryInterval)
	for _, write := range slices.Clone(w.failedWrites) {
		if w.IsWriteFailing(write.Purpose) { // The function OnSuccess of another write may have cancelled this write.
			w.FinishWrite(write, write.WriteFile())
		}
	}
}
