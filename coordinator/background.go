package coordinator

import (
	"sync"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// background runs writes and removals of a round while the next round is under way.
type background struct {
	records  *host.Line // writes the history's line and the archived model, which must exist before the next journal
	removals *host.Line // removes old models and spools
	pruned   uint64     // models below this version are removed; 0 = none since the start

	mu    sync.Mutex
	notes []writeResult
}

// writeResult is the result of a write that the job queue records has done.
type writeResult struct {
	what string
	err  error
}

// record queues a write that has to be done before the next journal. A write that fails is repeated.
func (c *Coordinator) record(what string, write func() error) {
	c.background.records.Do(func() {
		_ = c.repeat(write, c.owner.PauseBeside, func(err error) { // else the coordinator stops: see Run
			c.background.mu.Lock()
			defer c.background.mu.Unlock()
			c.background.notes = append(c.background.notes, writeResult{what, err})
			c.owner.Wake()
		})
	})
}

// takeNotes reports writes that have begun to fail or succeed again.
func (c *Coordinator) takeNotes() {
	c.background.mu.Lock()
	notes := c.background.notes
	c.background.notes = nil
	c.background.mu.Unlock()
	for _, n := range notes {
		c.wrote(n.what, n.err)
	}
}

// recorded waits until the records of the previous round are written. The time during which the disk is full does not
// count for the round under way.
func (c *Coordinator) recorded() error {
	began := c.owner.Now()
	err := c.owner.Hold(func() bool {
		c.takeNotes()
		return c.background.records.Idle()
	})
	if err == nil && c.owner.Now().Sub(began) >= persistAgain && !c.unstored {
		c.events.Next(round.StorageFailed{Since: began}, round.StorageMended{})
	}
	return err
}

// journal makes a record of the machine count, and what must be there with it.
func (c *Coordinator) journal(r round.Record) bool {
	if c.recorded() != nil {
		return false
	}
	c.outcome = blob{}
	if n := len(r.Outcomes); n > 0 && r.Last != nil && r.Last.Round == r.Outcomes[n-1].Round {
		c.outcome = newBlob(r.Outcomes[n-1].Outcome, wire.Digest{})
	}
	c.keepRolled(&r.Rollout)
	c.disk.listed = c.publisher.plan(c.blobsOf(&r.Plan))
	if !c.committed(func() error {
		return c.untilDone("save the state of the round", func() error { return c.disk.saveRecord(r) })
	}) {
		return false
	}
	if m, w := c.work.fresh, c.work; m != nil && m.hash == r.Plan.Base.Hash {
		w.fresh = nil
		m.lasts = rolled(&r.Rollout, r.Plan.File.Hash)
		c.record("save the model in the archive", func() error { return w.archive(m) })
	}
	c.prune(uint64(r.Plan.Version), rolledOf(&r.Rollout, r.Run))
	return true
}

// committed has a record written, and makes it count for whoever leads next. It reports false if the coordinator stops.
func (c *Coordinator) committed(write func() error) bool {
	if c.cfg.Replica == nil {
		return write() == nil
	}
	err := c.cfg.Replica.Commit(c.owner.Context(), c.disk.epoch, write)
	if err != nil && c.stopped == nil && c.owner.Context().Err() == nil { // else it is to stop, and does
		c.stopped = err
	}
	return err == nil
}

// inlineOutcome bounds an outcome that rides in the announcement, in bytes: of some hundred updates.
const inlineOutcome = 1 << 10

// blobsOf returns what the announcements of a plan name and do not hold.
func (c *Coordinator) blobsOf(p *round.Plan) []blob {
	lean := *p
	lean.Base = c.lean(p.Base)
	all := c.work.blobsOf(&lean)
	if len(c.outcome.data) > inlineOutcome {
		all = append(all, c.outcome)
	}
	return append(all, c.rolled...)
}

// inlineBudget bounds what the models inside of an announcement are together, over all agents that get it, in bytes.
const inlineBudget = 100_000_000

// lean is a reference to the model as announcements have it: where a small one would go to very many agents, it is
// pulled by those that need it.
func (c *Coordinator) lean(base wire.BlobRef) wire.BlobRef {
	if len(base.Inline)*c.machine.Connected() > inlineBudget && base.Hash == c.work.base.ref.Hash {
		return c.work.base.ref
	}
	return base
}

// prune removes models that are too old, once the newest is in the archive: for each version, and once after a start,
// since a power cut may bring back what was removed. The versions in spare stay.
func (c *Coordinator) prune(version uint64, spare []uint64) {
	models, keep, log := c.disk.models, c.cfg.KeepModels, c.cfg.Logger
	if keep == 0 || c.background.pruned == version+1 {
		return
	}
	c.background.pruned = version + 1
	c.background.records.Do(func() {
		c.background.removals.Do(func() {
			var hourly []uint64
			var err error
			if n := c.cfg.KeepHourly; n > 0 {
				hourly, err = models.Hourly(n)
			}
			if err == nil {
				err = models.Prune(keep, version, append(hourly, spare...)...)
			}
			if err != nil {
				log.Warn("old models are left behind; the next round removes them", "err", err)
			}
		})
	})
}

// removeSpool has the spool of a round that is over removed.
func (c *Coordinator) removeSpool(r wire.RoundID, s *store.Spool) {
	c.background.removals.Do(func() {
		if s != nil {
			if err := s.Close(); err != nil {
				c.cfg.Logger.Warn("closing the spool", "round", r, "err", err)
			}
		}
		if err := c.disk.removeSpool(r); err != nil {
			c.cfg.Logger.Warn("an old spool is left behind", "round", r, "err", err)
		}
	})
}
