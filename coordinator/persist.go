package coordinator

import (
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
)

// persistAgain is the time after which a write that failed is tried again.
const persistAgain = 5 * time.Second

// untilDone repeats a write that must be on disk before anything else happens: a
// full disk blocks the round until space is freed, and nothing is lost. The time
// that this takes does not count for the round. The error is the context's:
// the coordinator stops before it is done.
func (c *Coordinator) untilDone(what string, write func() error) error {
	var since time.Time
	err := c.repeat(write, c.owner.Pause, func(err error) { // who waits is alive: a restart would not make room
		if since.IsZero() {
			since = c.owner.Now()
		}
		c.wrote(what, err)
	})
	if err == nil && !since.IsZero() && !c.unstored { // before any event that would find the deadline passed
		c.events.Next(round.StorageFailed{Since: since}, round.StorageMended{})
	}
	return err
}

// besideDone is untilDone beside the owner, who goes on.
func (c *Coordinator) besideDone(what string, write func() error) error {
	return c.repeat(write, c.owner.PauseBeside, func(err error) { c.owner.Tell(func() { c.wrote(what, err) }) })
}

// repeat tries a write until it is done, or the coordinator stops. note is told
// each failure, and the success after one.
func (c *Coordinator) repeat(write func() error, pause func(time.Duration) error, note func(error)) error {
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

// wrote takes the result of a write to the state folder, and tells when the folder
// begins to fail and when it is well again.
func (c *Coordinator) wrote(what string, err error) {
	began, over := c.writeFailures.Note(what, err)
	if began {
		c.cfg.Observer.Observe(StorageFailing{what, err})
	}
	if over {
		c.cfg.Observer.Observe(StorageMended{})
	}
}

// storedUpdate takes the result of storing an update, or a part of it. While the
// disk has no room for them the round's time stands still.
func (c *Coordinator) storedUpdate(err error) {
	c.wrote("store an update", err)
	switch unstored := store.Passing(err); {
	case unstored && !c.unstored:
		c.unstored = true
		c.step(round.StorageFailed{Since: c.owner.Now()})
	case err == nil && c.unstored:
		c.unstored = false
		c.step(round.StorageMended{})
	}
}
