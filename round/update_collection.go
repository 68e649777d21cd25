package round

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// open draws the participants of the round and announces it.
func (c *Coordinator) open(now time.Time) {
	c.helloGraceEndsAt = now
	c.readmitEarly()
	agents := c.roster.eligible()
	if c.roundHasMixing() {
		if c.mixing.pendingParticipants == nil {
			c.judgeEdges()
		}
		switch {
		case c.mixing.pendingParticipants != nil: // its edges are on their way
		case c.blockContinues(agents) && len(c.agentsWithoutEdges(c.rec.Participants)) == 0:
			c.continueBlock(now, agents)
		default:
			c.requestEdges(agents)
		}
		return
	}
	how, l := c.cfg.Sampling, c.cfg.Participants+c.cfg.ExtraParticipants
	if c.rec.Plan.Kind == wire.KindStatistics { // everybody, once
		how, l = spec.WithoutReplacement, len(agents)
	}
	var s Sampler
	draws := drawnAgents(agents, s.Draw(how, len(agents), l, c.lastUpdateLengths(agents), NewDrawRand(c.cfg.Seed,
		c.rec.Round)))
	weights := c.weightFunction(agents)
	c.rec.Agents, c.rec.Participants, c.rec.Block = len(agents), nil, 0
	for _, d := range draws {
		samples := c.roster.members[d.Agent].rowCount
		c.rec.Participants = append(c.rec.Participants,
			Participant{Agent: d.Agent, Times: d.DrawCount, Weight: weights(samples), Odds: d.Odds,
				Samples: samples})
	}
	c.announcement.roundAnnouncedAt = now
	c.startCollecting(now)
}

// startCollecting announces the round of the record. Those that are drawn are named in the announcement, or invited
// after it.
func (c *Coordinator) startCollecting(now time.Time) {
	c.enter(now, CoordinatorCollecting)
	c.trackParticipants()
	c.pause.roundInterrupted, c.deadlinePassed = !c.linkUp, false
	c.roster.edgesStale = true // some may have sat out this round as the last one
	c.phaseDeadline = now.Add(c.cfg.Deadline)
	c.saveJournalRecord(now)
	c.announceRecord(now, wire.PhaseOpen)
	event := RoundOpened{Round: c.rec.Round, Attempt: c.rec.Attempt, Kind: c.rec.Plan.Kind, Version: c.rec.Plan.Version,
		EligibleAgents: c.rec.Agents, ResponseLottery: c.rec.Responding}
	event.SidelinedAgents = c.sidelinedList(c.rec.Round)
	for _, p := range c.rec.Participants {
		event.Participants = append(event.Participants, p.Agent)
	}
	c.report(event)
}

// inviteSilent invites, in id order, those that have not answered yet: never before the announcement is out.
func (c *Coordinator) inviteSilent(now time.Time) {
	c.reinviteAt = time.Time{}
	if !c.announcement.published {
		return
	}
	for i := range c.rec.Participants {
		if p := c.progress.byAgent[c.rec.Participants[i].Agent]; p.state == peerInvited {
			c.inviteParticipant(now, p)
		}
	}
}

// inviteParticipant invites a participant, and has it invited again while it is silent.
func (c *Coordinator) inviteParticipant(now time.Time, p *participantProgress) {
	if !c.announcement.published {
		return // named in the announcement, or invited after it
	}
	c.sendInvitation(now, p)
	if c.reinviteAt.IsZero() {
		c.reinviteAt = now.Add(c.cfg.InviteEvery)
	}
}

// sendInvitation sends an invitation with the time that is left, which the agent
// measures on its own clock from the moment it gets it. The step size of a
// participant carries K·p_k only where the server's average does not.
func (c *Coordinator) sendInvitation(now time.Time, p *participantProgress) {
	weight := c.rec.Plan.StepWeight(c.cfg.WeightPlacement, p.Weight)
	c.emit(Invite{Agent: p.Agent, TimeLeft: c.timeLeft(now), StepWeight: weight, MustUpload: p.Times > 0,
		EdgeBlockRound: c.rec.Block,
		MixingPeers:    c.mixingPeersOf(p), EndedEdges: c.endedEdgesOf(p.Agent), Samples: p.Samples})
}

// participantOf returns the participant that a message of the round is from, or nil.
func (c *Coordinator) participantOf(a wire.AgentID, r wire.RoundID) *participantProgress {
	if m := c.roster.members[a]; m != nil && !m.present {
		c.roster.changeMember(a, func(m *rosterMember) { m.present = true })
	}
	if !c.isInPhase(CoordinatorCollecting) || r != c.rec.Round {
		return nil
	}
	return c.progress.byAgent[a]
}

func (c *Coordinator) handleJoined(e JoinedReceived) {
	if p := c.participantOf(e.Agent, e.Round); p != nil && p.state == peerInvited {
		c.changeState(p, peerJoined)
		c.report(AgentJoined(e))
	}
}

// handleDeclined answers, too: an agent says it again until it has an answer.
func (c *Coordinator) handleDeclined(now time.Time, e DeclinedReceived) {
	c.sendStanding(e.Agent, wire.PlaceNotSelected)
	if p := c.participantOf(e.Agent, e.Round); p != nil && p.state < peerAccepted {
		c.dropOut(now, p, e.Reason)
	}
}

func (c *Coordinator) dropOut(now time.Time, p *participantProgress, reason wire.DeclineReason) {
	c.changeState(p, peerOut)
	p.localStepsDiverged = reason == wire.DeclineDiverged
	c.report(AgentDeclined{p.Agent, c.rec.Round, reason})
	c.reassignDraws(now, p)
	c.closeIfReady(now)
}

// handleOffer judges an update by its manifest (docs/PROTOCOL.md, 10.2).
func (c *Coordinator) handleOffer(now time.Time, e OfferReceived) {
	digest := e.Update.Payload.Hash
	p := c.participantOf(e.Agent, e.Round)
	if c.hasUpdate(e.Agent, e.Run, e.Round, digest) {
		c.emit(AcceptUpdate{e.Agent, e.Round, digest}) // the answer was lost
		return
	}
	if c.isBeingAggregated(e.Run, e.Round) {
		return
	}
	if reason := c.checkOffer(p, e); reason != 0 {
		c.refuse(e.Agent, e.Run, e.Round, digest, reason)
		if reason == wire.RefuseMalformed { // nothing better comes
			c.changeState(p, peerOut)
			c.reassignDraws(now, p)
			c.closeIfReady(now)
		}
		return
	}
	if p.state == peerInvited {
		c.changeState(p, peerJoined)
		c.report(AgentJoined{e.Agent, e.Round})
	}
	p.offeredDigest = digest
	c.emit(ReceiveUpdate(e))
}

// hasUpdate reports whether the update is in the round's set, which may be fixed
// already, or was in that of the round before.
func (c *Coordinator) hasUpdate(a wire.AgentID, run wire.RunID, r wire.RoundID, update wire.Digest) bool {
	if taken, ok := c.rec.Counted.Updates[a]; ok && run == c.rec.Run && r == c.rec.Counted.Round && taken == update {
		return true
	}
	p := c.progress.byAgent[a]
	return p != nil && run == c.rec.Run && r == c.rec.Round && p.state == peerAccepted && p.Accepted == update
}

// repeatAcceptances tells, in id order, the agents whose updates are held, or in
// the last closed round's model, that they are. One that was not
// told, because the link was lost or the process has ended, would count its work as lost at the next announcement.
func (c *Coordinator) repeatAcceptances() {
	counted := &c.rec.Counted
	for _, a := range slices.Sorted(maps.Keys(counted.Updates)) {
		c.emit(AcceptUpdate{a, counted.Round, counted.Updates[a]})
	}
	for _, p := range c.rec.Participants {
		if !p.Accepted.IsZero() {
			c.emit(AcceptUpdate{p.Agent, c.rec.Round, p.Accepted})
		}
	}
}

// IsAgentWorking reports whether an agent has joined the open round and has offered
// nothing yet: it fetches, or trains.
func (c *Coordinator) IsAgentWorking(a wire.AgentID) bool {
	p := c.progress.byAgent[a]
	return p != nil && c.isInPhase(CoordinatorCollecting) && p.state == peerJoined && p.offeredDigest.IsZero()
}

// isBeingAggregated reports whether a round is being folded, or its end is not on disk. Updates that are not in the set
// are not refused yet, since it may be opened again: their agents ask again.
func (c *Coordinator) isBeingAggregated(run wire.RunID, r wire.RoundID) bool {
	return run == c.rec.Run &&
		(c.isInPhase(CoordinatorClosing) && r == c.rec.Round || c.roundAwaitingDiscard != 0 &&
			r == c.roundAwaitingDiscard)
}

// checkOffer returns why the update cannot count, or 0.
func (c *Coordinator) checkOffer(p *participantProgress, e OfferReceived) wire.UpdateRefusalReason {
	plan := &c.rec.Plan
	switch {
	case e.Run != c.rec.Run, e.Round > c.rec.Round:
		return wire.RefuseWrongRound
	case e.Round < c.rec.Round, !c.isInPhase(CoordinatorCollecting):
		return wire.RefuseLate
	case p == nil, p.state == peerOut, p.Times == 0:
		return wire.RefuseNotSelected
	case p.state == peerAccepted:
		return wire.RefuseConflict
	case e.Update.Kind != plan.Kind:
		return wire.RefuseWrongRound
	case e.Update.Extra.CheckSupported() != nil:
		return wire.RefuseUnsupported
	case e.Update.Base != plan.trainingBase().Hash:
		return wire.RefuseWrongBase
	case !plan.acceptsManifest(&e.Update.Payload):
		return wire.RefuseWrongSchema
	case !c.rowCountAgrees(p, e.Update.Samples):
		return wire.RefuseMalformed
	}
	return 0
}

func (c *Coordinator) refuse(a wire.AgentID, run wire.RunID, r wire.RoundID, update wire.Digest,
	reason wire.UpdateRefusalReason) {
	c.emit(RefuseUpdate{a, run, r, update, reason})
	c.report(UpdateRefused{a, r, reason})
}

// handleUpdateStored accepts an update that is here, if the round still takes it.
func (c *Coordinator) handleUpdateStored(now time.Time, e UpdateStored) {
	digest := e.Update.Payload.Hash
	p := c.participantOf(e.Agent, e.Round)
	if c.hasUpdate(e.Agent, c.rec.Run, e.Round, digest) {
		return // told twice
	}
	if c.isBeingAggregated(c.rec.Run, e.Round) {
		return
	}
	if p == nil || p.state == peerOut || p.Times == 0 {
		c.refuse(e.Agent, c.rec.Run, e.Round, digest, wire.RefuseLate)
		return
	}
	if p.state == peerAccepted {
		return
	}
	c.changeState(p, peerAccepted)
	p.Accepted, p.Norm = digest, e.Norm
	c.rememberUpdateLength(p)
	c.handleEdgeReport(e.Agent, &e.Update.EdgeMeasurements)
	c.emit(AcceptUpdate{e.Agent, e.Round, digest})
	c.report(UpdateAccepted{Agent: e.Agent, Round: e.Round, Update: e.Update, Norm: e.Norm,
		SinceAnnouncement: now.Sub(c.announcement.roundAnnouncedAt),
		SavedBytes:        c.rec.Plan.bytesSavedByCodec(&e.Update.Payload)})
	c.closeIfReady(now)
}

// handleUpdateRejected ends the participation of an agent whose update failed a check.
func (c *Coordinator) handleUpdateRejected(now time.Time, e UpdateRejected) {
	if c.hasUpdate(e.Agent, c.rec.Run, e.Round, e.Update) {
		return // a transfer of what is here already
	}
	c.refuse(e.Agent, c.rec.Run, e.Round, e.Update, e.Reason)
	if p := c.participantOf(e.Agent, e.Round); p != nil && p.state < peerAccepted && p.offeredDigest == e.Update {
		c.changeState(p, peerOut)
		c.reassignDraws(now, p)
		c.closeIfReady(now)
	}
}

var (
	openedRound = observe.OptionalGauge("round",
		"Number of the round that was opened last; abandoned ones count.")
	openedAttempt = observe.OptionalGauge("round_attempt",
		"Attempt at which this round was opened: more than 1 after a restart or a longer gathering.")
	askedShare = observe.Gauge("respond_share",
		"Share of the agents that were asked for a hello before the round that was opened last: 1 = all.")
	estimatedAgents = observe.OptionalGauge("agents_estimated",
		"Agents that would say hello if all were asked, by those that were heard; known where a share is asked.")
	sidelinedAgents = observe.Gauge("agents_sitting_out",
		"Agents that spoiled a round and were not drawn for it in the round that opened last; they are not in K.")
)

// RoundOpened: the participants of a round are drawn.
type RoundOpened struct {
	Round           wire.RoundID
	Attempt         wire.Attempt
	Kind            wire.RoundKind
	Version         wire.ModelVersion // of the base model
	EligibleAgents  int               // K
	Participants    []wire.AgentID    // in id order
	SidelinedAgents []Sidelined       // not drawn, and not in K; in id order
	ResponseLottery ResponseLottery   // the share of the agents that was asked, where agents answer by chance
}

// Describe implements observe.Event. A finished run continues with its next round.
func (e RoundOpened) Describe(d *observe.Description) {
	d.Set(runFinished, 0)
	d.Select(runEndReason, "")
	d.Set(openedRound, float64(e.Round))
	d.Set(openedAttempt, float64(e.Attempt))
	d.Set(askedShare, e.ResponseLottery.Probability())
	if n := e.ResponseLottery.Agents; n > 0 {
		d.Set(estimatedAgents, n)
	}
	d.Set(ModelVersion, float64(e.Version))
	d.Set(eligibleAgents, float64(e.EligibleAgents))
	d.Set(sidelinedAgents, float64(len(e.SidelinedAgents)))
	d.Log(observe.Info, "round opened", "round", e.Round, "attempt", e.Attempt, "kind", e.Kind,
		"agents", e.EligibleAgents, "participants", len(e.Participants))
	d.Show(observe.Activity, fmt.Sprintf("round %d is open for %d of %d agents", e.Round, len(e.Participants),
		e.EligibleAgents))
}

var joinedParticipants = observe.Counter("participants_joined_total", "Participants that went to work.")

// AgentJoined: a participant has begun to work.
type AgentJoined struct {
	Agent wire.AgentID
	Round wire.RoundID
}

// Describe implements observe.Event.
func (AgentJoined) Describe(d *observe.Description) { d.Inc(joinedParticipants) }

var declinedParticipants = observe.CounterByLabel("participants_declined_total",
	"Participants that did not take part, by the reason they gave.",
	"reason", observe.StringerNames(wire.DeclineReasons()))

// AgentDeclined: a participant does not take part.
type AgentDeclined struct {
	Agent  wire.AgentID
	Round  wire.RoundID
	Reason wire.DeclineReason
}

// Describe implements observe.Event.
func (e AgentDeclined) Describe(d *observe.Description) {
	d.Inc(declinedParticipants, e.Reason.String())
	d.Log(observe.Warn, "agent declined", "round", e.Round, "agent", e.Agent, "reason", e.Reason)
}

// The norm of an update depends on the model, so its buckets span six decades. The number of local steps E_k is a
// count.
var (
	acceptedUpdates = observe.Counter("updates_accepted_total", "Updates that passed all checks and are held.")
	acceptanceDelay = observe.Histogram("update_accepted_after_seconds",
		"Time from the announcement of a round to the acceptance of an update.", roundBuckets)
	updateNorm = observe.Histogram("update_norm", "Euclidean norm of the accepted updates of training rounds.",
		[]float64{1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 1000})
	acceptedLocalSteps = observe.Histogram("local_steps",
		"Local steps E_k behind the accepted updates of training rounds.",
		[]float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000})
	savedUpdateBytes = observe.Counter("update_bytes_saved_total",
		"Bytes that accepted updates would have had more without task.codec.")
)

// UpdateAccepted: the update of a participant passed all checks and is kept.
type UpdateAccepted struct {
	Agent             wire.AgentID
	Round             wire.RoundID
	Update            wire.Update
	Norm              float64
	SinceAnnouncement time.Duration
	SavedBytes        int64 // by the codec, compared with the uncompressed vector
}

// Describe implements observe.Event. Only updates of training rounds are measured: the norm of the sums of a statistics
// round has no meaning.
func (e UpdateAccepted) Describe(d *observe.Description) {
	d.Inc(acceptedUpdates)
	d.Observe(acceptanceDelay, e.SinceAnnouncement.Seconds())
	if e.Update.Kind == wire.KindTraining {
		d.Observe(updateNorm, e.Norm)
		d.Observe(acceptedLocalSteps, float64(e.Update.LocalSteps))
		d.Add(savedUpdateBytes, float64(e.SavedBytes))
	}
	if d.Wants(observe.Debug) {
		d.Log(observe.Debug, "update accepted", "round", e.Round, "agent", e.Agent,
			"local_steps", e.Update.LocalSteps, "norm", observe.Rounded(e.Norm), "after", e.SinceAnnouncement)
	}
}

var refusedUpdates = observe.CounterByLabel("updates_refused_total",
	"Updates that were not taken, by reason; a refused update may be offered again and refused again.",
	"reason", observe.StringerNames(wire.UpdateRefusalReasons()))

// UpdateRefused: the update of an agent failed a check.
type UpdateRefused struct {
	Agent  wire.AgentID
	Round  wire.RoundID
	Reason wire.UpdateRefusalReason
}

// Describe implements observe.Event.
func (e UpdateRefused) Describe(d *observe.Description) {
	d.Inc(refusedUpdates, e.Reason.String())
	d.Log(observe.Warn, "update refused", "round", e.Round, "agent", e.Agent, "reason", e.Reason)
}
