package coordinator

import (
	"sync"

	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// backgroundJobs runs writes and removals of a round while the next round is under way.
type backgroundJobs struct {
	// writes the history's line and the archived model, which must exist before the next journal
	writeJobs          *host.SerialQueue
	removalJobs        *host.SerialQueue // removes old models and spools
	prunedBelowVersion uint64            // models below this version are removed; 0 = none since the start

	mu           sync.Mutex
	writeResults []writeResult
}

// writeResult is the result of a write that the job queue records has done.
type writeResult struct {
	operation string
	err       error
}

// queueWrite queues a write that has to be done before the next journal. A write that fails is repeated.
func (c *Coordinator) queueWrite(what string, write func() error) {
	c.background.writeJobs.Do(func() {
		_ = c.retryWrite(write, c.ownerLoop.PauseJob, func(err error) { // else the coordinator stops: see Run
			c.background.mu.Lock()
			defer c.background.mu.Unlock()
			c.background.writeResults = append(c.background.writeResults, writeResult{what, err})
			c.ownerLoop.Wake()
		})
	})
}

// reportWriteResults reports writes that have begun to fail or succeed again.
func (c *Coordinator) reportWriteResults() {
	c.background.mu.Lock()
	notes := c.background.writeResults
	c.background.writeResults = nil
	c.background.mu.Unlock()
	for _, n := range notes {
		c.reportWriteResult(n.operation, n.err)
	}
}

// awaitQueuedWrites waits until the records of the previous round are written. The time during which the disk is full
// does not count for the round under way.
func (c *Coordinator) awaitQueuedWrites() error {
	began := c.ownerLoop.Now()
	err := c.ownerLoop.WaitFor(func() bool {
		c.reportWriteResults()
		return c.background.writeJobs.Idle()
	})
	if err == nil && c.ownerLoop.Now().Sub(began) >= persistAgain && !c.uploads.StorageFails() {
		c.events.PushFront(round.StorageFailed{Since: began}, round.StorageRecovered{})
	}
	return err
}

// saveJournalRecord makes a record of the machine count, and what must be there with it.
func (c *Coordinator) saveJournalRecord(r round.Record) bool {
	if c.awaitQueuedWrites() != nil {
		return false
	}
	c.lastRoundOutcome = publish.Blob{}
	if n := len(r.Outcomes); n > 0 && r.Last != nil && r.Last.Round == r.Outcomes[n-1].Round {
		c.lastRoundOutcome = publish.NewBlob(r.Outcomes[n-1].Outcome, wire.Digest{})
	}
	c.loadRolloutFiles(&r.Rollout)
	c.stateFolder.PublishedBlobs = c.publisher.Plan(c.nonInlineBlobsOfPlan(&r.Plan))
	if !c.commitReplicatedWrite(func() error {
		return c.retryWriteBlocking("save the state of the round", func() error { return c.stateFolder.SaveRecord(r) })
	}) {
		return false
	}
	archive := c.aggregator.PendingArchive(r.Plan.Base.Hash, isRolledOut(&r.Rollout, r.Plan.File.Hash))
	if archive != nil {
		c.queueWrite("save the model in the archive", archive)
	}
	c.prune(uint64(r.Plan.Version), rolledOutVersions(&r.Rollout, r.Run))
	return true
}

// commitReplicatedWrite has a record written, and makes it count for whoever leads next. It reports false if the
// coordinator stops.
func (c *Coordinator) commitReplicatedWrite(write func() error) bool {
	if c.cfg.FolderReplicator == nil {
		return write() == nil
	}
	err := c.cfg.FolderReplicator.Commit(c.ownerLoop.Context(), c.stateFolder.Epoch, write)
	if err != nil && c.stopError == nil && c.ownerLoop.Context().Err() == nil { // else it is to stop, and does
		c.stopError = err
	}
	return err == nil
}

// inlineOutcome bounds an outcome that rides in the announcement, in bytes: of some hundred updates.
const inlineOutcome = 1 << 10

// nonInlineBlobsOfPlan returns what the announcements of a plan name and do not hold.
func (c *Coordinator) nonInlineBlobsOfPlan(p *round.Plan) []publish.Blob {
	lean := *p
	lean.Base = c.announcedModelRef(p.Base)
	all := c.aggregator.NonInlineBlobs(&lean)
	if len(c.lastRoundOutcome.Data) > inlineOutcome {
		all = append(all, c.lastRoundOutcome)
	}
	return append(all, c.rolloutFiles...)
}

// inlineBudget bounds what the models inside of an announcement are together, over all agents that get it, in bytes.
const inlineBudget = 100_000_000

// announcedModelRef is a reference to the model as announcements have it: where a small one would go to very many
// agents, it is pulled by those that need it.
func (c *Coordinator) announcedModelRef(base wire.BlobRef) wire.BlobRef {
	if b := c.aggregator.BaseModel().Ref; len(base.Inline)*c.machine.ConnectedAgents() > inlineBudget &&
		base.Hash == b.Hash {
		return b
	}
	return base
}

// prune removes models that are too old, once the newest is in the archive: for each version, and once after a start,
// since a power cut may bring back what was removed. The versions in spare stay.
func (c *Coordinator) prune(version uint64, spare []uint64) {
	models, keep, log := c.stateFolder.Models, c.cfg.KeepModels, c.cfg.Logger
	if keep == 0 || c.background.prunedBelowVersion == version+1 {
		return
	}
	c.background.prunedBelowVersion = version + 1
	c.background.writeJobs.Do(func() {
		c.background.removalJobs.Do(func() {
			var hourly []uint64
			var err error
			if n := c.cfg.KeepHourlyModels; n > 0 {
				hourly, err = models.NewestPerHour(n)
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
