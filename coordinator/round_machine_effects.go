package coordinator

import (
	"crypto/sha256"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// performEffect performs an effect of the round machine. It returns false if the coordinator stops before the effect is
// on disk.
func (c *Coordinator) performEffect(e round.Effect) bool {
	run, present := c.runID, c.currentRound()
	switch e := e.(type) {
	case round.ReportEvent:
		c.cfg.Observer.Observe(e.Event)
	case round.SaveJournalRecord:
		return c.saveJournalRecord(e.Record)
	case round.WriteHistory:
		c.folderWriter.enqueueWrite("append the round to the run's history",
			func() error { return c.stateFolder.AppendRoundToHistory(e) })
	case round.PublishAnnouncement:
		return c.publishAnnouncement(e)
	case round.SendInvitation:
		m := wire.Invitation{Agent: e.Agent, Announcement: c.publisher.AnnouncementDigest(),
			RemainingMillis: uint32(max(e.TimeLeft, 0).Milliseconds()), StepSizeWeight: e.StepWeight,
			MustSendUpdate:   e.MustUpload,
			MixingBlockRound: e.MixingBlockRound,
			Peers:            e.MixingPeers, EndedEdges: e.EndedEdges, ReportedRows: e.KnownRowCount,
			KeyAttestation: c.attestationFor(e.Agent)}
		c.sendToAgent(e.Agent, wire.TypeInvitation, run, present, m.Body())
	case round.RequestEdges:
		c.mesh.PlanMesh(e.Agents, func(m meshplan.MixingGraph, err error) {
			c.cfg.Observer.Observe(meshplan.MeshComputed{Round: e.Round, MixingGraph: m, Err: err})
			c.stepMachine(round.EdgesReady{Round: e.Round, Edges: m.Edges})
		})
	case round.RequestEdgesAhead:
		c.mesh.PlanMesh(e.Agents, func(meshplan.MixingGraph, error) { c.stepMachine(round.EdgesAheadReady{}) })
	case round.SendRoundStanding:
		m := wire.HelloAnswer{Announcement: c.publisher.AnnouncementDigest(), SelectionStatus: e.Standing,
			ReportedRows: e.KnownRowCount}
		c.sendToAgent(e.Agent, wire.TypeHelloAnswer, run, present, m.Body())
	case round.ReceiveUpdate:
		c.uploads.ReceiveUpdate(e)
	case round.SendUpdateAcceptance:
		m := wire.UpdateAccepted{Update: e.UpdateDigest}
		c.sendToAgent(e.Agent, wire.TypeUpdateAccepted, run, e.Round, m.Body())
	case round.SendUpdateRefusal:
		c.uploads.EndTransfer(e.Agent, e.UpdateDigest)
		m := wire.UpdateRefused{Update: e.UpdateDigest, Reason: e.Reason}
		c.sendToAgent(e.Agent, wire.TypeUpdateRefused, e.Run, e.Round, m.Body())
	case round.SendUpdateFate:
		m := wire.UpdateFateAnswer{Update: e.UpdateDigest, Fate: e.Fate}
		c.sendToAgent(e.Agent, wire.TypeUpdateFateAnswer, run, e.Round, m.Body())
	case round.AggregateUpdates:
		c.aggregateRound(e)
	case round.ReportEvaluation:
		c.handleEvaluationReport(e)
	case round.DiscardRoundSpool:
		c.uploads.DiscardRound(e.Round)
	}
	return true
}

// attestationFor returns the coordinator's signature of an agent's key. With it, the agent proves to its neighbours
// that its beacons (discovery messages) are authentic. The signature is zero if agents do not discover neighbours.
func (c *Coordinator) attestationFor(agent wire.AgentID) (by wire.Signature) {
	key := c.messageChecker.AgentKey(agent)
	if !c.cfg.IssuesAttestations || key == nil {
		return by
	}
	text := wire.AgentKeyAttestationText(c.cfg.Federation, agent, wire.SigningPublicKey(key))
	return wire.Signature(c.cfg.Signatures.Sign(c.cfg.Key, text))
}

// publishAnnouncement publishes an announcement and its blobs as retained messages. It returns false if the coordinator
// stops before the state folder is written.
func (c *Coordinator) publishAnnouncement(e round.PublishAnnouncement) bool {
	if e.Announcement.Phase == wire.PhaseOpen && c.uploads.SpoolOfRound(e.Round) == nil {
		r := c.roundMachine.JournalRecord()
		if c.folderWriter.writeBeforeContinuing("open the folder for the round's updates", func() error {
			_, err := c.uploads.OpenSpool(&r)
			return err
		}) != nil {
			return false
		}
	}
	if c.keyring.RenewSecretIfDue(c.runID, e.Round, c.cfg.rootDocumentVersion(), func(do func() error) error {
		return c.folderWriter.writeBeforeContinuing("save the encryption keys", do)
	}) != nil {
		return false
	}
	c.announcedTask = c.aggregator.Task()
	e.Announcement.SealPublicKey = c.keyring.AnnouncedKey()
	e.Announcement.BaseModel = c.announcedModelRef(e.Announcement.BaseModel)
	blobs := c.nonInlineBlobsOfPlan(&round.Plan{Kind: e.Announcement.Kind, Task: e.Announcement.Task,
		BaseModel: e.Announcement.BaseModel})
	e.Announcement.InstanceNonce = c.duplicateGuard.Instance()
	e.Announcement.LastRoundOutcome = c.lastRoundOutcome.AnnouncementRef(inlineOutcome)
	resealed := c.keyring.SealBlobs(&e.Announcement, blobs)
	e.Announcement.IssuedAt = c.duplicateGuard.NextIssueTime(c.ownerLoop.Now())
	c.signer.SetRootVersion(c.cfg.rootDocumentVersion())
	order := wire.AnnouncementPositionOf(wire.Header{Root: c.signer.RootVersion(), Epoch: c.signer.Epoch, Run: c.runID,
		Round: e.Round},
		&e.Announcement)
	e.Announcement.Selection = c.newSelection(order, e.SelectedAgents)
	sealed := c.signer.SignedEnvelope(wire.TypeAnnouncement, c.runID, e.Round, e.Announcement.Body())
	c.uploads.SetAnnouncedRound(e.Round, c.announcedTask.UpdateSchema(wire.KindTraining).ElementCount(),
		e.Announcement.InitialCreditChunks)
	c.duplicateGuard.RecordAnnouncement(order, sha256.Sum256(sealed[:wire.HeaderSize]))
	c.publisher.Announce(c.ownerLoop.Now(), sealed, blobs, resealed)
	return true
}

// newSelection returns the list of the drawn agents for an announcement. Each agent can recognise only itself in the
// list. An agent whose key has no X25519 form is omitted and receives an invitation instead.
func (c *Coordinator) newSelection(o wire.AnnouncementPosition, drawn []round.SelectedAgent) wire.AgentSelection {
	selected := make([]wire.SelectedAgent, 0, len(drawn))
	for _, d := range drawn {
		key, err := c.keyring.SelectionKey(d.Agent)
		if err != nil {
			c.cfg.Logger.Debug("agent omitted from the announcement because no encryption key can be derived for the "+
				"agent", "agent", d.Agent,
				"err", err)
			continue
		}
		selected = append(selected, wire.SelectedAgent{Key: key, StepSizeWeight: d.StepWeight})
	}
	return wire.NewAgentSelection(o, c.duplicateGuard.Instance(), selected)
}

// handleAnnouncementSent continues the round after the connection has accepted the current announcement.
func (c *Coordinator) handleAnnouncementSent(now time.Time) {
	c.duplicateGuard.RecordAnnouncementSent(now)
	o := c.duplicateGuard.PresentPosition()
	if o.Phase == wire.PhaseOpen { // Other agents request the group key in a hello.
		for _, p := range c.roundMachine.JournalRecord().Participants {
			if c.keyring.LacksGroupKey(p.Agent) {
				c.sendGroupKey(p.Agent)
			}
		}
	}
	c.stepMachine(round.AnnouncementSent{Round: o.Round, Attempt: o.Attempt, Phase: o.Phase})
}

// sendGroupKey sends an agent the key with which the announced blobs are encrypted. It does nothing if the blobs are
// not encrypted.
func (c *Coordinator) sendGroupKey(agent wire.AgentID) {
	if m, ok := c.keyring.GroupKeyFor(agent); ok {
		c.sendToAgent(agent, wire.TypeGroupKeyDelivery, c.runID, c.currentRound(), m.Body())
	}
}

// aggregateRound aggregates a closed round in a job.
func (c *Coordinator) aggregateRound(e round.AggregateUpdates) {
	run, spool := c.runID, c.uploads.SpoolOfRound(e.Round)
	c.ownerLoop.GoThen(func() func() {
		folded, events := c.aggregator.Aggregate(run, spool, e)
		// Upload the model in advance, because it may be large and the journal waits for the upload.
		if c.cfg.FolderReplicator != nil && folded.Err == nil {
			c.cfg.FolderReplicator.PrepareFolderCommit(c.ownerLoop.Context())
		}
		return func() {
			for _, f := range events {
				c.cfg.Observer.Observe(f)
			}
			c.stepMachine(folded)
		}
	})
}
