package coordinator

import (
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// saveJournalRecord writes a record of the round machine to the journal, after all writes that must precede it. It then
// archives the record's model. It returns false if the coordinator stops before the record is on disk.
func (c *Coordinator) saveJournalRecord(r round.JournalRecord) bool {
	if c.folderWriter.awaitQueuedWrites() != nil {
		return false
	}
	c.lastRoundOutcome = publish.Blob{}
	if n := len(r.RecentOutcomes); n > 0 && r.LastOutcome != nil && r.LastOutcome.Round == r.RecentOutcomes[n-1].Round {
		c.lastRoundOutcome = publish.NewBlob(r.RecentOutcomes[n-1].Outcome, wire.Digest{})
	}
	c.loadRolloutFiles(&r.Rollout)
	c.stateFolder.PublishedBlobs = c.publisher.PlanListing(c.nonInlineBlobsOfPlan(&r.Plan))
	write := func() error {
		return c.folderWriter.writeBeforeContinuing("save the state of the round in the journal",
			func() error { return c.stateFolder.SaveJournalRecord(r) })
	}
	if c.cfg.FolderReplicator == nil {
		if write() != nil {
			return false
		}
	} else if err := c.cfg.FolderReplicator.CommitFolderWrite(c.ownerLoop.Context(), c.stateFolder.Epoch,
		write); err != nil {
		if c.stopError == nil && c.ownerLoop.Context().Err() == nil { // otherwise the coordinator is stopping already
			c.stopError = err
		}
		return false
	}
	archive := c.aggregator.PendingArchiveWrite(r.Plan.BaseModel.Hash, isRolledOut(&r.Rollout, r.Plan.ModelFile.Hash))
	if archive != nil {
		c.folderWriter.enqueueWrite("save the model in the archive", archive)
	}
	c.folderWriter.pruneModels(c.stateFolder.CurrentRunModels, uint64(r.Plan.BaseModelVersion), c.cfg.KeepModels,
		c.cfg.KeepHourlyModels,
		rolledOutVersions(&r.Rollout, r.Run), c.cfg.Logger)
	return true
}

// inlineOutcome is the maximum size in bytes of a round's outcome that is sent inside an announcement. It suffices for
// several hundred updates.
const inlineOutcome = 1 << 10

// nonInlineBlobsOfPlan returns the blobs that announcements of a plan refer to but do not contain.
func (c *Coordinator) nonInlineBlobsOfPlan(p *round.Plan) []publish.Blob {
	lean := *p
	lean.BaseModel = c.announcedModelRef(p.BaseModel)
	all := c.aggregator.NonInlineBlobs(&lean)
	if len(c.lastRoundOutcome.Data) > inlineOutcome {
		all = append(all, c.lastRoundOutcome)
	}
	return append(all, c.rolloutFiles...)
}

// inlineBudget limits the size in bytes of a model that is sent inside announcements, multiplied by the number of
// connected agents.
const inlineBudget = 100_000_000

// announcedModelRef returns the model reference for an announcement. It omits the model's data if too many agents would
// receive the announcement. Agents then download the model when they need it.
func (c *Coordinator) announcedModelRef(base wire.BlobRef) wire.BlobRef {
	if b := c.aggregator.BaseModel().Ref; len(base.Inline)*c.roundMachine.ConnectedAgentCount() > inlineBudget &&
		base.Hash == b.Hash {
		return b
	}
	return base
}
