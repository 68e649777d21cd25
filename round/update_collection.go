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

// openRound draws the participants of the round and announces it.
func (c *CoordinatorMachine) openRound(now time.Time) {
	c.helloGraceEndsAt = now
	c.readmitAgentsEarly()
	agents := c.roster.eligibleAgentIDs()
	if c.roundHasMixing() {
		if c.mixing.pendingParticipants == nil {
			c.judgeEdges()
		}
		switch {
		case c.mixing.pendingParticipants != nil: // The request for the round's edges is pending.
		case c.mixingBlockContinues(agents) && len(c.agentsWithoutEdges(c.record.Participants)) == 0:
			c.continueMixingBlock(now, agents)
		default:
			c.requestEdges(agents)
		}
		return
	}
	how, l := c.cfg.Sampling, c.cfg.Participants+c.cfg.ExtraParticipants
	if c.record.Plan.Kind == wire.KindStatistics { // A statistics round draws each agent once.
		how, l = spec.SamplingWithoutReplacement, len(agents)
	}
	var s IndexSampler
	draws := agentsAtDrawnIndices(agents, s.Draw(how, len(agents), l, c.lastUpdateNorms(agents), NewDrawRand(c.cfg.Seed,
		c.record.Round)))
	weights := c.agentWeightFunction(agents)
	c.record.EligibleAgents, c.record.Participants, c.record.MixingBlockRound = len(agents), nil, 0
	for _, d := range draws {
		samples := c.roster.memberByAgent[d.Agent].rowCount
		c.record.Participants = append(c.record.Participants,
			Participant{Agent: d.Agent, DrawCount: d.DrawCount, Weight: weights(samples), Odds: d.Odds,
				RowCount: samples})
	}
	c.announcement.roundAnnouncedAt = now
	c.startCollectingUpdates(now)
}

// startCollectingUpdates announces the round of the record. Either the announcement lists the drawn agents, or the
// coordinator invites them after the announcement.
func (c *CoordinatorMachine) startCollectingUpdates(now time.Time) {
	c.enterPhase(now, CoordinatorCollecting)
	c.trackParticipants()
	c.deadlinePause.roundInterrupted, c.deadlinePassed = !c.linkUp, false
	// Agents whose exclusion from draws ends with this round will change the edges of the next round.
	c.roster.edgesStale = true
	c.phaseDeadline = now.Add(c.cfg.RoundTimeout)
	c.saveJournalRecord(now)
	c.announcePhase(now, wire.PhaseOpen)
	event := RoundOpened{Round: c.record.Round, Attempt: c.record.Attempt, Kind: c.record.Plan.Kind,
		BaseModelVersion: c.record.Plan.BaseModelVersion,
		EligibleAgents:   c.record.EligibleAgents, ResponseLottery: c.record.ResponseLottery}
	event.SidelinedAgents = c.sidelinedAgentsFromRound(c.record.Round)
	for _, p := range c.record.Participants {
		event.Participants = append(event.Participants, p.Agent)
	}
	c.reportEvent(event)
}

// inviteSilentParticipants invites the participants that have not answered, in id order. It does nothing before the
// announcement is published.
func (c *CoordinatorMachine) inviteSilentParticipants(now time.Time) {
	c.reinviteAt = time.Time{}
	if !c.announcement.isPublished {
		return
	}
	for i := range c.record.Participants {
		if p := c.progress.progressByAgent[c.record.Participants[i].Agent]; p.state == stateInvited {
			c.inviteParticipant(now, p)
		}
	}
}

// inviteParticipant sends an invitation to a participant, and schedules another invitation in case the participant does
// not answer.
func (c *CoordinatorMachine) inviteParticipant(now time.Time, p *participantProgress) {
	if !c.announcement.isPublished {
		return // The agent is invited after the announcement, or listed in it.
	}
	c.sendInvitation(now, p)
	if c.reinviteAt.IsZero() {
		c.reinviteAt = now.Add(c.cfg.ReinviteInterval)
	}
}

// sendInvitation sends an invitation with the remaining time of the round, which the agent measures on its own clock
// from the arrival of the invitation. The step weight in the invitation contains the agent's weight K·p_k only if the
// server's average does not apply it.
func (c *CoordinatorMachine) sendInvitation(now time.Time, p *participantProgress) {
	weight := c.record.Plan.StepWeight(c.cfg.WeightPlacement, p.Weight)
	c.emitEffect(SendInvitation{Agent: p.Agent, TimeLeft: c.roundTimeLeft(now), StepWeight: weight,
		MustUpload:       p.DrawCount > 0,
		MixingBlockRound: c.record.MixingBlockRound,
		MixingPeers:      c.mixingPeersOf(p), EndedEdges: c.endedEdgesOfAgent(p.Agent), KnownRowCount: p.RowCount})
}

// markPresentAndFindParticipant marks the sender of a message as present. It returns the sender's progress in round r,
// or nil if it is not a participant of the open round.
func (c *CoordinatorMachine) markPresentAndFindParticipant(a wire.AgentID, r wire.RoundID) *participantProgress {
	if m := c.roster.memberByAgent[a]; m != nil && !m.isPresent {
		c.roster.changeMember(a, func(m *rosterMember) { m.isPresent = true })
	}
	if !c.isInPhase(CoordinatorCollecting) || r != c.record.Round {
		return nil
	}
	return c.progress.progressByAgent[a]
}

func (c *CoordinatorMachine) handleJoined(e JoinedReceived) {
	if p := c.markPresentAndFindParticipant(e.Agent, e.Round); p != nil && p.state == stateInvited {
		c.changeParticipantState(p, stateJoined)
		c.reportEvent(AgentJoined(e))
	}
}

// handleDeclined ends the participation of an agent that declined. It always replies, since an agent repeats a declined
// message until it receives an answer.
func (c *CoordinatorMachine) handleDeclined(now time.Time, e DeclinedReceived) {
	c.sendRoundStanding(e.Agent, wire.StatusNotSelected)
	if p := c.markPresentAndFindParticipant(e.Agent, e.Round); p != nil && p.state < stateAccepted {
		c.dropParticipant(now, p, e.Reason)
	}
}

func (c *CoordinatorMachine) dropParticipant(now time.Time, p *participantProgress, reason wire.DeclineReason) {
	c.changeParticipantState(p, stateDroppedOut)
	p.localStepsDiverged = reason == wire.DeclineDiverged
	c.reportEvent(AgentDeclined{p.Agent, c.record.Round, reason})
	c.reassignDraws(now, p)
	c.closeRoundIfReady(now)
}

// handleUpdateOffer checks an offered update by its manifest and starts its transfer (docs/PROTOCOL.md, 10.2).
func (c *CoordinatorMachine) handleUpdateOffer(now time.Time, e UpdateOfferReceived) {
	digest := e.Update.PayloadManifest.Hash
	p := c.markPresentAndFindParticipant(e.Agent, e.Round)
	if c.hasAcceptedUpdate(e.Agent, e.Run, e.Round, digest) {
		c.emitEffect(SendUpdateAcceptance{e.Agent, e.Round, digest}) // The agent did not receive the acceptance.
		return
	}
	if c.isRoundBeingAggregated(e.Run, e.Round) {
		return
	}
	if reason := c.checkUpdateOffer(p, e); reason != 0 {
		c.refuseUpdate(e.Agent, e.Run, e.Round, digest, reason)
		if reason == wire.RefuseMalformed { // The agent would otherwise send the same malformed update again.
			c.changeParticipantState(p, stateDroppedOut)
			c.reassignDraws(now, p)
			c.closeRoundIfReady(now)
		}
		return
	}
	if p.state == stateInvited {
		c.changeParticipantState(p, stateJoined)
		c.reportEvent(AgentJoined{e.Agent, e.Round})
	}
	p.offeredUpdateDigest = digest
	c.emitEffect(ReceiveUpdate(e))
}

// hasAcceptedUpdate reports whether the update was accepted in the current round or the last closed one.
func (c *CoordinatorMachine) hasAcceptedUpdate(a wire.AgentID, run wire.RunID, r wire.RoundID,
	update wire.Digest) bool {
	if taken,
		ok := c.record.LastAcceptedUpdates.UpdateDigestByAgent[a]; ok && run == c.record.Run &&
		r == c.record.LastAcceptedUpdates.Round && taken == update {
		return true
	}
	p := c.progress.progressByAgent[a]
	return p != nil && run == c.record.Run && r == c.record.Round && p.state == stateAccepted &&
		p.AcceptedUpdateDigest == update
}

// resendAcceptances sends the acceptances of the current and the last closed round again, in id order. An agent that
// missed its acceptance, because of a lost connection or a restart, would otherwise consider its work lost.
func (c *CoordinatorMachine) resendAcceptances() {
	counted := &c.record.LastAcceptedUpdates
	for _, a := range slices.Sorted(maps.Keys(counted.UpdateDigestByAgent)) {
		c.emitEffect(SendUpdateAcceptance{a, counted.Round, counted.UpdateDigestByAgent[a]})
	}
	for _, p := range c.record.Participants {
		if !p.AcceptedUpdateDigest.IsZero() {
			c.emitEffect(SendUpdateAcceptance{p.Agent, c.record.Round, p.AcceptedUpdateDigest})
		}
	}
}

// IsAgentWorking reports whether an agent has joined the open round and has not offered an update yet. Such an agent
// downloads the model or trains.
func (c *CoordinatorMachine) IsAgentWorking(a wire.AgentID) bool {
	p := c.progress.progressByAgent[a]
	return p != nil && c.isInPhase(CoordinatorCollecting) && p.state == stateJoined && p.offeredUpdateDigest.IsZero()
}

// isRoundBeingAggregated reports whether a round is being aggregated or the end of the round is not in the journal yet.
// The coordinator does not refuse updates of such a round: after a crash the round opens again, and the agents then
// offer the same updates again.
func (c *CoordinatorMachine) isRoundBeingAggregated(run wire.RunID, r wire.RoundID) bool {
	return run == c.record.Run &&
		(c.isInPhase(CoordinatorClosing) && r == c.record.Round || c.roundAwaitingDiscard != 0 &&
			r == c.roundAwaitingDiscard)
}

// checkUpdateOffer returns the reason for refusing an offered update, or 0 if the update is acceptable.
func (c *CoordinatorMachine) checkUpdateOffer(p *participantProgress, e UpdateOfferReceived) wire.UpdateRefusalReason {
	plan := &c.record.Plan
	switch {
	case e.Run != c.record.Run, e.Round > c.record.Round:
		return wire.RefuseWrongRound
	case e.Round < c.record.Round, !c.isInPhase(CoordinatorCollecting):
		return wire.RefuseLate
	case p == nil, p.state == stateDroppedOut, p.DrawCount == 0:
		return wire.RefuseNotSelected
	case p.state == stateAccepted:
		return wire.RefuseConflict
	case e.Update.Kind != plan.Kind:
		return wire.RefuseWrongRound
	case e.Update.Extra.CheckSupported() != nil:
		return wire.RefuseUnsupported
	case e.Update.BaseModelDigest != plan.trainingBaseModel().Hash:
		return wire.RefuseWrongBase
	case !plan.acceptsManifest(&e.Update.PayloadManifest):
		return wire.RefuseWrongSchema
	case !c.updateRowCountMatchesHello(p, e.Update.Samples):
		return wire.RefuseMalformed
	}
	return 0
}

func (c *CoordinatorMachine) refuseUpdate(a wire.AgentID, run wire.RunID, r wire.RoundID, update wire.Digest,
	reason wire.UpdateRefusalReason) {
	c.emitEffect(SendUpdateRefusal{a, run, r, update, reason})
	c.reportEvent(UpdateRefused{a, r, reason})
}

// handleUpdateStored accepts a stored update if the round still allows it.
func (c *CoordinatorMachine) handleUpdateStored(now time.Time, e UpdateStored) {
	digest := e.Update.PayloadManifest.Hash
	p := c.markPresentAndFindParticipant(e.Agent, e.Round)
	if c.hasAcceptedUpdate(e.Agent, c.record.Run, e.Round, digest) {
		return // The event was already processed.
	}
	if c.isRoundBeingAggregated(c.record.Run, e.Round) {
		return
	}
	if p == nil || p.state == stateDroppedOut || p.DrawCount == 0 {
		c.refuseUpdate(e.Agent, c.record.Run, e.Round, digest, wire.RefuseLate)
		return
	}
	if p.state == stateAccepted {
		return
	}
	c.changeParticipantState(p, stateAccepted)
	p.AcceptedUpdateDigest, p.UpdateNorm = digest, e.Norm
	p.UpdateCodec, p.ReportedRisk = e.Update.PayloadManifest.Codec, e.Update.RiskBefore
	c.rememberUpdateNorm(p)
	c.handleEdgeReport(e.Agent, &e.Update.EdgeMeasurements)
	c.emitEffect(SendUpdateAcceptance{e.Agent, e.Round, digest})
	c.reportEvent(UpdateAccepted{Agent: e.Agent, Round: e.Round, Update: e.Update, Norm: e.Norm,
		TimeSinceAnnouncement: now.Sub(c.announcement.roundAnnouncedAt),
		BytesSavedByCodec:     c.record.Plan.bytesSavedByCodec(&e.Update.PayloadManifest)})
	c.closeRoundIfReady(now)
}

// handleUpdateRejected ends the participation of an agent whose update failed a check.
func (c *CoordinatorMachine) handleUpdateRejected(now time.Time, e UpdateRejected) {
	if c.hasAcceptedUpdate(e.Agent, c.record.Run, e.Round, e.UpdateDigest) {
		return // The agent's update was accepted in an earlier transfer.
	}
	c.refuseUpdate(e.Agent, c.record.Run, e.Round, e.UpdateDigest, e.Reason)
	if p := c.markPresentAndFindParticipant(e.Agent,
		e.Round); p != nil && p.state < stateAccepted && p.offeredUpdateDigest == e.UpdateDigest {
		c.changeParticipantState(p, stateDroppedOut)
		c.reassignDraws(now, p)
		c.closeRoundIfReady(now)
	}
}

var (
	openedRoundMetric = observe.OptionalGauge("round",
		"Number of the last opened round, including abandoned rounds.")
	openedAttemptMetric = observe.OptionalGauge("round_attempt",
		"Attempt number of the open round, which increases after a restart or if too few agents reply.")
	answerShareMetric = observe.Gauge("respond_share",
		"Share of the agents that were asked to report for the last opened round. 1 means all agents.")
	estimatedAgentsMetric = observe.OptionalGauge("agents_estimated",
		"Estimated number of agents that would reply if all were asked. Absent if all agents are asked.")
	sidelinedAgentsMetric = observe.Gauge("agents_sitting_out",
		"Agents excluded from the last opened round because they failed in an earlier round. Eligible agents do not "+
			"include them.")
)

// RoundOpened is emitted when the participants of a round are drawn.
type RoundOpened struct {
	Round            wire.RoundID
	Attempt          wire.RoundAttempt
	Kind             wire.RoundKind
	BaseModelVersion wire.ModelVersion // version of the base model
	EligibleAgents   int               // number K of eligible agents
	Participants     []wire.AgentID    // drawn agents, in id order
	// agents excluded from the draw and from the number K of eligible agents, in id order
	SidelinedAgents []SidelinedAgent
	ResponseLottery ResponseLottery // lottery that selected the agents to send a hello message
}

// Describe implements observe.Event. It also marks the run as not finished, because a finished run may continue.
func (e RoundOpened) Describe(d *observe.EventDescription) {
	d.SetGauge(runFinishedMetric, 0)
	d.SelectGaugeState(runEndReasonMetric, "")
	d.SetGauge(openedRoundMetric, float64(e.Round))
	d.SetGauge(openedAttemptMetric, float64(e.Attempt))
	d.SetGauge(answerShareMetric, e.ResponseLottery.AnswerProbability())
	if n := e.ResponseLottery.EstimatedAgents; n > 0 {
		d.SetGauge(estimatedAgentsMetric, n)
	}
	d.SetGauge(ModelVersion, float64(e.BaseModelVersion))
	d.SetGauge(eligibleAgentsMetric, float64(e.EligibleAgents))
	d.SetGauge(sidelinedAgentsMetric, float64(len(e.SidelinedAgents)))
	d.Log(observe.Info, "round opened", "round", e.Round, "attempt", e.Attempt, "kind", e.Kind,
		"agents", e.EligibleAgents, "participants", len(e.Participants))
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("round %d is in progress with %d of %d agents", e.Round,
		len(e.Participants),
		e.EligibleAgents))
}

var joinedParticipantsMetric = observe.Counter("participants_joined_total",
	"Participants that started to work in a round.")

// AgentJoined is emitted when a participant has started its work.
type AgentJoined struct {
	Agent wire.AgentID
	Round wire.RoundID
}

// Describe implements observe.Event.
func (AgentJoined) Describe(d *observe.EventDescription) { d.IncCounter(joinedParticipantsMetric) }

var declinedParticipantsMetric = observe.CounterByLabel("participants_declined_total",
	"Participants that declined the round, by reason.",
	"reason", observe.StringerNames(wire.DeclineReasons()))

// AgentDeclined is emitted when a participant declines the round.
type AgentDeclined struct {
	Agent  wire.AgentID
	Round  wire.RoundID
	Reason wire.DeclineReason
}

// Describe implements observe.Event.
func (e AgentDeclined) Describe(d *observe.EventDescription) {
	d.IncCounter(declinedParticipantsMetric, e.Reason.String())
	d.Log(observe.Warn, "agent declined the round", "round", e.Round, "agent", e.Agent, "reason", e.Reason)
}

// Metrics of accepted updates. The histogram buckets for norms span six decades, because the norm of an update depends
// on the model. The number of local steps, E_k for agent k, is an integer count.
var (
	acceptedUpdatesMetric = observe.Counter("updates_accepted_total", "Updates that passed all checks.")
	acceptanceDelayMetric = observe.Histogram("update_accepted_after_seconds",
		"Time from the announcement of a round to the acceptance of an update.", roundDurationBuckets)
	updateNormMetric = observe.Histogram("update_norm", "Euclidean norm of the accepted updates of training rounds.",
		[]float64{1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 1000})
	acceptedLocalStepsMetric = observe.Histogram("local_steps",
		"Number of local training steps in each accepted update of training rounds.",
		[]float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000})
	savedUpdateBytesMetric = observe.Counter("update_bytes_saved_total",
		"Bytes saved in accepted updates by their compression with task.codec.")
)

// UpdateAccepted is emitted when the update of a participant has passed all checks and is stored.
type UpdateAccepted struct {
	Agent                 wire.AgentID
	Round                 wire.RoundID
	Update                wire.Update
	Norm                  float64
	TimeSinceAnnouncement time.Duration
	BytesSavedByCodec     int64 // bytes saved by the codec, compared with the uncompressed vector
}

// Describe implements observe.Event. It measures only updates of training rounds, since the norm of an update of column
// statistics has no meaning.
func (e UpdateAccepted) Describe(d *observe.EventDescription) {
	d.IncCounter(acceptedUpdatesMetric)
	d.ObserveHistogram(acceptanceDelayMetric, e.TimeSinceAnnouncement.Seconds())
	if e.Update.Kind == wire.KindTraining {
		d.ObserveHistogram(updateNormMetric, e.Norm)
		d.ObserveHistogram(acceptedLocalStepsMetric, float64(e.Update.LocalSteps))
		d.AddToCounter(savedUpdateBytesMetric, float64(e.BytesSavedByCodec))
	}
	if d.WantsLogLevel(observe.Debug) {
		d.Log(observe.Debug, "update accepted", "round", e.Round, "agent", e.Agent,
			"local_steps", e.Update.LocalSteps, "norm", observe.RoundToFourDigits(e.Norm), "after",
			e.TimeSinceAnnouncement)
	}
}

var refusedUpdatesMetric = observe.CounterByLabel("updates_refused_total",
	"Refused updates, by reason. An update that is offered again after a refusal may be counted again.",
	"reason", observe.StringerNames(wire.UpdateRefusalReasons()))

// UpdateRefused is emitted when an agent's update has failed a check.
type UpdateRefused struct {
	Agent  wire.AgentID
	Round  wire.RoundID
	Reason wire.UpdateRefusalReason
}

// Describe implements observe.Event.
func (e UpdateRefused) Describe(d *observe.EventDescription) {
	d.IncCounter(refusedUpdatesMetric, e.Reason.String())
	d.Log(observe.Warn, "update refused", "round", e.Round, "agent", e.Agent, "reason", e.Reason)
}
