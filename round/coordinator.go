package round

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// CoordinatorMachine is the state machine of the coordinator (parameter server). It is not safe for concurrent use: one
// goroutine owns it.
type CoordinatorMachine struct {
	cfg      Config
	record   JournalRecord
	roster   roster
	progress roundProgress
	// sidelinedAgentByID contains the agents that recently failed to deliver a usable update and are therefore excluded
	// from draws. An entry remains for some time after the agent may be drawn again.
	sidelinedAgentByID     map[wire.AgentID]SidelinedAgent
	linkUp                 bool
	abandonsRecoveredRound bool // whether the round that was open when this process started must be abandoned
	hellosRequested        bool // whether this process has asked all agents for a hello message
	announcement           announcementState
	// round whose stored updates are deleted after the next journal record is saved; 0 means none
	roundAwaitingDiscard wire.RoundID

	phaseEnteredAt time.Time     // time at which the current phase began
	deadlinePassed bool          // whether the deadline of the open round has passed
	phaseDeadline  time.Time     // time at which the current phase ends
	deadlinePause  deadlinePause // stops the clock of the round while the disk cannot be written
	// time at which the coordinator invites agents again that have not answered; zero means never
	reinviteAt time.Time
	// number of rounds abandoned in a row; determines the delay before the next round
	consecutiveAbandons  int
	retryRoundAt         time.Time      // earliest time of the next round after an abandoned one
	agentsWithCappedRows []wire.AgentID // agents whose number of rows was capped in the last draw
	mixing               mixingState
	rolloutTrial         rolloutTrial // trial of the model that is being rolled out
	evaluationState      evaluationState
	// time until which agents that were known before a restart may still send a hello message
	helloGraceEndsAt time.Time
	helloWindow      helloWindow
	// last reported wait for the schedule (time windows and new rows); zero if the next round does not wait
	lastReportedWait ScheduleWait

	effects []Effect // effects that the current call of Step returns
}

// announcementState describes the announcement that the coordinator last published.
type announcementState struct {
	phase            wire.AnnouncementPhase
	namesDrawnAgents bool      // whether the announcement lists the drawn agents
	isPublished      bool      // whether the broker has received the announcement over the current connection
	publishedAt      time.Time // time at which the broker received the announcement; zero if it has not
	// roundAnnouncedAt is the time at which this process first announced the round.
	roundAnnouncedAt time.Time
}

// SpooledUpdate describes an update that was accepted before a restart of the coordinator and is still stored on the
// coordinator's disk.
type SpooledUpdate struct {
	UpdateDigest wire.Digest
	Norm         float64    // Euclidean norm ‖v_k‖₂ of the update v_k of agent k
	Codec        spec.Codec // codec with which the update is encoded
	RiskBefore   float64    // risk of the base model on the agent's local data, as reported by the agent
}

// NewCoordinator returns the state machine that continues from record, the last saved journal record. For a new run,
// the caller passes JournalRecord{Run: …, Phase: CoordinatorIdle, Plan: …}. The parameter spooled contains the updates
// of the record's round that are stored on disk.
func NewCoordinator(cfg Config, record JournalRecord, spooled map[wire.AgentID]SpooledUpdate) *CoordinatorMachine {
	c := &CoordinatorMachine{cfg: cfg, record: record, roster: roster{memberByAgent: map[wire.AgentID]*rosterMember{},
		minNewRows: uint64(cfg.Schedule.NewRows.MinRowsPerAgent)},
		sidelinedAgentByID: map[wire.AgentID]SidelinedAgent{},
		mixing:             mixingState{endedEdgeByEnds: map[edgeKey]EndedEdge{}}}
	for _, s := range record.SidelinedAgents {
		c.sidelinedAgentByID[s.Agent] = s
	}
	for _, e := range record.EndedEdges {
		c.mixing.endedEdgeByEnds[edgeKey{e.A, e.B}] = e
	}
	c.startCollectingEdgeReports()
	c.mixing.edgesMustChange = record.Plan.HasEndlessBlocks && record.MixingBlockRound > 0 && c.clipBoundHasChanged()
	if !cfg.Gather.ResponseLottery.IsEnabled() {
		c.record.ResponseLottery = ResponseLottery{}
	}
	if !cfg.Rollout.IsEnabled() {
		c.record.Rollout = rollout.State{}
	}
	c.record.Participants = slices.Clone(record.Participants)
	for i := range c.record.Participants {
		p := &c.record.Participants[i]
		u := spooled[p.Agent]
		// Do not use the update of a participant without draws. It arrived after other agents had been drawn to replace
		// this participant.
		if c.record.Phase == CoordinatorCollecting && p.DrawCount > 0 {
			p.AcceptedUpdateDigest = u.UpdateDigest
		}
		if u.UpdateDigest == p.AcceptedUpdateDigest {
			p.UpdateNorm, p.UpdateCodec, p.ReportedRisk = u.Norm, u.Codec, u.RiskBefore
		}
	}
	return c
}

// JournalRecord returns a copy of the machine's current record, for status displays.
func (c *CoordinatorMachine) JournalRecord() JournalRecord {
	r := c.record
	r.Participants = slices.Clone(c.record.Participants)
	r.SidelinedAgents, r.EndedEdges = c.sidelinedAgentsFromRound(0), c.endedEdgesFromRound(0)
	return r
}

// Deadline returns the time at which the caller must deliver the next Tick event. It returns false if no Tick is
// needed.
func (c *CoordinatorMachine) Deadline() (time.Time, bool) {
	var at time.Time
	for _, t := range []time.Time{c.phaseDeadline, c.reinviteAt, c.mixing.edgeReportsDeadline, c.retryRoundAt,
		c.rolloutTrial.nextJudgingAt,
		c.evaluationState.helloGraceEndsAt, c.evaluationState.endsAt, c.runTimeLimitEndsAt()} {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at, !at.IsZero()
}

// Step processes one event and returns the effects that the caller must perform, in order.
func (c *CoordinatorMachine) Step(now time.Time, ev Event) []Effect {
	c.effects = nil
	switch e := ev.(type) {
	case StartOrResumeRun:
		c.startOrResumeRun(now)
	case LinkUp:
		c.setLink(now, true)
	case LinkDown:
		c.setLink(now, false)
	case StorageFailed:
		c.deadlinePause.storageFailingSince = e.FailingSince
	case StorageRecovered:
		c.resumeRoundTime(now)
	case AnnouncementSent:
		c.handleAnnouncementSent(now, e)
	case HelloReceived:
		c.handleHello(now, e)
	case PresenceReceived:
		c.handlePresence(now, e)
	case AgentsRevoked:
		c.handleAgentsRevoked(now, e)
	case JoinedReceived:
		c.handleJoined(e)
	case DeclinedReceived:
		c.handleDeclined(now, e)
	case UpdateOfferReceived:
		c.handleUpdateOffer(now, e)
	case UpdateStored:
		c.handleUpdateStored(now, e)
	case UpdateRejected:
		c.handleUpdateRejected(now, e)
	case OperatorCommandChanged:
		c.handleOperatorCommand(now, e)
	case EdgesReady:
		c.handleEdgesReady(now, e)
	case EdgesAheadReady:
		c.mixing.edgesAheadRequestPending = false
	case AggregationEnded:
		c.handleAggregationEnded(now, e)
	}
	c.runDueTimers(now)
	c.requestEdgesAhead()
	return c.effects
}

func (c *CoordinatorMachine) emitEffect(e Effect)               { c.effects = append(c.effects, e) }
func (c *CoordinatorMachine) reportEvent(f observe.Event)       { c.emitEffect(ReportEvent{f}) }
func (c *CoordinatorMachine) isInPhase(p CoordinatorPhase) bool { return c.record.Phase == p }

// saveJournalRecord emits the effect that saves the record to the journal. It then emits the effects that write the
// round that has ended to the history and delete data that only the previous record needed.
func (c *CoordinatorMachine) saveJournalRecord(now time.Time) {
	c.nominateCandidate(now)
	c.emitEffect(SaveJournalRecord{c.JournalRecord()})
	if c.roundAwaitingDiscard != 0 {
		c.emitEffect(WriteHistory{c.record.Run, *c.record.LastOutcome, c.record.RunStopReason})
		c.emitEffect(DiscardRoundSpool{c.roundAwaitingDiscard})
		c.roundAwaitingDiscard = 0
	}
}

// enterPhase changes the phase of the machine and clears the timers of the previous phase.
func (c *CoordinatorMachine) enterPhase(now time.Time, p CoordinatorPhase) {
	before := c.record.Phase
	c.record.Phase, c.phaseDeadline, c.reinviteAt, c.deadlinePause.deadlineHeldSince = p, time.Time{}, time.Time{},
		time.Time{}
	c.mixing.edgeReportsDeadline = time.Time{}
	if !c.phaseEnteredAt.IsZero() {
		c.reportEvent(PhaseEntered{Phase: p, PreviousPhase: before, PreviousPhaseDuration: now.Sub(c.phaseEnteredAt)})
	}
	c.phaseEnteredAt = now
}

// startOrResumeRun begins a new run, or resumes the round that the journal contains.
func (c *CoordinatorMachine) startOrResumeRun(now time.Time) {
	c.phaseEnteredAt, c.announcement.roundAnnouncedAt, c.helloGraceEndsAt = now, now, now.Add(c.cfg.Gather.WindowLength)
	c.startRolloutTrial(now)
	if s := &c.record.Rollout; s.Released.IsSet() {
		c.reportEvent(RolloutBegan{Candidate: s.Candidate.ModelRef, Released: s.Released.ModelRef,
			MinDecidingAgents: c.cfg.Rollout.MinDecidingAgents, IsResumed: true})
	}
	// The previous process may have stopped after saving the record and before writing the history, so write it again.
	if c.record.LastOutcome != nil {
		c.emitEffect(WriteHistory{c.record.Run, *c.record.LastOutcome, c.record.RunStopReason})
	}
	c.record.StopState.Resume(&c.cfg.Stop, now)
	if c.cfg.Stop.IsEnabled() {
		c.reportEvent(StopProgressReported{c.cfg.Stop, c.record.StopState})
	}
	switch c.record.Phase {
	case CoordinatorCollecting:
		// Keep the participants of the interrupted round, but announce it with a new attempt number.
		c.record.Attempt++
		c.startCollectingUpdates(now)
		if c.abandonsRecoveredRound && c.cfg.OperatorCommand != CommandContinue {
			c.abandonRound(now, AbandonByOperator, nil)
			return
		}
		c.closeRoundIfReady(now)
	case CoordinatorFinished:
		why := c.runStopReason(now)
		if why == "" {
			c.record.RunStopReason = ""
			// The maximum number of rounds was raised in the configuration, so the finished run continues.
			c.startNextRound(now)
			return
		}
		// Use a new attempt number: encrypting the announcement again changes its digest, and agents would report a
		// conflict between two announcements with the same attempt number.
		c.record.Attempt++
		c.finishRun(now, why)
	case CoordinatorGathering:
		if c.pauseOrStopByCommand(now) {
			return
		}
		c.record.Attempt++
		c.startGathering(now)
	default:
		c.startNextRound(now)
	}
}

func (c *CoordinatorMachine) setLink(now time.Time, up bool) {
	c.linkUp, c.deadlinePause.roundInterrupted, c.announcement.isPublished = up,
		c.deadlinePause.roundInterrupted || !up,
		false // The announcement is published again when the connection is back.
	c.helloWindow.openedAt = time.Time{}
	if up {
		c.resendAcceptances()
	}
	if up && c.mixing.pendingParticipants == nil && c.isInPhase(CoordinatorGathering) {
		// Restart the gathering window, since agents could not send a hello message while the broker was unreachable.
		c.phaseDeadline = now.Add(c.cfg.Gather.WindowLength)
	}
}

// runDueTimers performs all actions whose scheduled time has passed.
func (c *CoordinatorMachine) runDueTimers(now time.Time) {
	c.judgeCandidate(now)
	c.endEvaluationIfDue(now)
	if why := c.runStopReason(now); why != "" && c.isBetweenRounds() {
		c.finishRun(now, why)
	}
	due := !c.phaseDeadline.IsZero() && !now.Before(c.phaseDeadline)
	switch c.record.Phase {
	case CoordinatorIdle:
		if due || c.newRowsSuffice() {
			c.startNextRound(now)
		}
	case CoordinatorGathering:
		c.openRoundIfGathered(now, due)
	case CoordinatorCollecting:
		if due {
			c.handleRoundDeadline(now)
		} else if !c.mixing.edgeReportsDeadline.IsZero() && !now.Before(c.mixing.edgeReportsDeadline) {
			c.closeRoundIfReady(now)
		} else if !c.reinviteAt.IsZero() && !now.Before(c.reinviteAt) {
			c.inviteSilentParticipants(now)
		}
	}
}

// roundOutcomeRef returns a reference that contains the encoded outcome of the given round inline. The host replaces
// the inline content of a large outcome by a download.
func (c *CoordinatorMachine) roundOutcomeRef(of wire.RoundID) wire.BlobRef {
	n := len(c.record.RecentOutcomes)
	if n == 0 || c.record.RecentOutcomes[n-1].Round != of {
		return wire.BlobRef{}
	}
	body := c.record.RecentOutcomes[n-1].Outcome
	return wire.BlobRef{Hash: wire.BlobDigest(body), Length: uint32(len(body)), Inline: body}
}

// announcePhase publishes an announcement of the current round in the given phase.
func (c *CoordinatorMachine) announcePhase(now time.Time, phase wire.AnnouncementPhase) {
	p, rows := &c.record.Plan, c.startEvaluation(now, phase)
	var folded wire.RoundID
	if c.record.LastOutcome != nil {
		folded = c.record.LastOutcome.Round
	}
	drawn, credit := c.announcedSelection()
	c.announcement.phase, c.announcement.namesDrawnAgents, c.announcement.isPublished,
		c.announcement.publishedAt = phase,
		drawn != nil, false, time.Time{}
	c.emitEffect(PublishAnnouncement{Round: c.record.Round, SelectedAgents: drawn, Announcement: wire.Announcement{
		Attempt: c.record.Attempt, Phase: phase, Kind: p.Kind, BaseModelVersion: p.BaseModelVersion, Task: p.Task,
		BaseModel:    p.trainingBaseModel(),
		UpdateSchema: p.UpdateSchema, LastEndedRound: folded, LastRoundOutcome: c.roundOutcomeRef(folded),
		Seed: c.cfg.Seed, PriorLocalSteps: p.LocalStepOffset,
		HelloSpreadMillis:   uint32(c.cfg.Gather.HelloSpread.Milliseconds()),
		RoundTimeoutMillis:  uint32(c.cfg.RoundTimeout.Milliseconds()),
		InitialCreditChunks: credit, MinNewRows: uint32(c.cfg.Schedule.NewRows.MinRowsPerAgent),
		MinEvaluationRows: rows,
		ResponsePolicy:    c.announcedResponsePolicy(),
		Rollout:           c.record.Rollout.AnnouncedRollout(&c.cfg.Rollout),
		ReleasedModelFile: c.record.Rollout.Released.File, CandidateModelFile: c.record.Rollout.Candidate.File,
	}})
}

var (
	coordinatorPhaseMetric = observe.GaugeByLabel("phase",
		"Phase of the run: 1 for the current phase, 0 for all others.", "phase",
		observe.NamesAsStrings(CoordinatorPhases()))
	phaseDurationMetric = observe.HistogramByLabel("phase_duration_seconds",
		"Duration of each completed phase.",
		roundDurationBuckets, "phase", observe.NamesAsStrings(timedPhases))
)

// timedPhases lists the phases whose durations are measured. It omits phases that last until an operator acts.
var timedPhases = []CoordinatorPhase{CoordinatorIdle, CoordinatorGathering, CoordinatorCollecting, CoordinatorClosing}

// PhaseEntered is emitted when the coordinator's machine changes its phase.
type PhaseEntered struct {
	Phase, PreviousPhase  CoordinatorPhase
	PreviousPhaseDuration time.Duration
}

// Describe implements observe.Event. It omits durations of 0, which occur when a restarted coordinator immediately
// leaves the phase recorded in the journal.
func (e PhaseEntered) Describe(d *observe.EventDescription) {
	d.SelectGaugeState(coordinatorPhaseMetric, string(e.Phase))
	d.ShowStatusValue(ScheduleWaitValue, nil)
	if e.Phase != CoordinatorIdle {
		d.SelectGaugeState(scheduleWaitingMetric, "")
	}
	if e.PreviousPhaseDuration > 0 && slices.Contains(timedPhases, e.PreviousPhase) {
		d.ObserveHistogram(phaseDurationMetric, e.PreviousPhaseDuration.Seconds(), string(e.PreviousPhase))
	}
}
