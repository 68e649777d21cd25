package coordinator

import (
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/round"
)

// persistAgain is the time after which a write that failed is tried again.
const persistAgain = 5 * time.Second

// retryWriteBlocking repeats a write that must be on disk before anything else happens: a
// full disk blocks the round until space is freed, and nothing is lost. The time
// that this takes does not count for the round. The error is the context's:
// the coordinator stops before it is done.
func (c *Coordinator) retryWriteBlocking(what string, write func() error) error {
	var since time.Time
	err := c.retryWrite(write, c.ownerLoop.Pause, func(err error) { // who waits is alive: a restart would not make room
		if since.IsZero() {
			since = c.ownerLoop.Now()
		}
		c.reportWriteResult(what, err)
	})
	// before any event that would find the deadline passed
	if err == nil && !since.IsZero() && !c.uploads.StorageFails() {
		c.events.PushFront(round.StorageFailed{Since: since}, round.StorageRecovered{})
	}
	return err
}

// retryWriteInBackground is retryWriteBlocking beside the owner, who goes on.
func (c *Coordinator) retryWriteInBackground(what string, write func() error) error {
	return c.retryWrite(write, c.ownerLoop.PauseJob, func(err error) {
		c.ownerLoop.RunOnLoop(func() {
			c.reportWriteResult(what,
				err)
		})
	})
}

// retryWrite tries a write until it is done, or the coordinator stops. note is told
// each failure, and the success after one.
func (c *Coordinator) retryWrite(write func() error, pause func(time.Duration) error, note func(error)) error {
	for failed := false; ; failed = true {
		err := write()
		if err != nil || failed {
			note(err)
		}
		if err == nil {
			return nil
		}
		if err := pause(persistAgain); err != nil {
			return err
		}
	}
}

// reportWriteResult takes the result of a write to the state folder, and tells when the folder
// begins to fail and when it is well again.
func (c *Coordinator) reportWriteResult(what string, err error) {
	began, over := c.writeFailures.RecordResult(what, err)
	if began {
		c.cfg.Observer.Observe(host.StorageFailing{Operation: what, Err: err})
	}
	if over {
		c.cfg.Observer.Observe(host.StorageRecovered{})
	}
}
