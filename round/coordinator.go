package round

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// CoordinatorMachine is the parameter server's machine. It is not safe for concurrent
// use: one goroutine owns it.
type CoordinatorMachine struct {
	cfg      Config
	record   JournalRecord
	roster   roster
	progress roundProgress
	// sidelinedAgentByID contains agents that spoiled a round, including those that may be drawn again.
	sidelinedAgentByID     map[wire.AgentID]SidelinedAgent
	linkUp                 bool
	abandonsRecoveredRound bool // the round found at the start is abandoned
	hellosRequested        bool // this process has asked all agents for a hello
	announcement           announcementState
	roundAwaitingDiscard   wire.RoundID // its spool is removed with the next record; 0 = none

	phaseEnteredAt       time.Time      // when the current phase began
	deadlinePassed       bool           // the round's deadline has passed
	phaseDeadline        time.Time      // deadline of the current phase
	deadlinePause        deadlinePause  // of the round's deadline
	reinviteAt           time.Time      // when agents that have not answered are invited again; zero = never
	consecutiveAbandons  int            // number of rounds that were abandoned in a row
	retryRoundAt         time.Time      // earliest time of the next round, after an abandoned one
	agentsWithCappedRows []wire.AgentID // agents whose number of rows was capped at the last draw
	mixing               mixingState
	rolloutTrial         rolloutTrial // of the candidate
	evaluationState      evaluationState
	helloGraceEndsAt     time.Time // until then, agents of the previous process have time to send a hello
	helloWindow          helloWindow
	lastReportedWait     ScheduleWait // the last report of a wait for the schedule; zero if it does not wait

	effects []Effect // of the current step
}

// announcementState is the state of the current announcement.
type announcementState struct {
	phase            wire.AnnouncementPhase
	namesDrawnAgents bool      // it names the drawn agents
	isPublished      bool      // the broker has received it over the current connection
	publishedAt      time.Time // when the broker received it; zero before
	// roundAnnouncedAt is when this process first announced the round.
	roundAnnouncedAt time.Time
}

// SpooledUpdate is an update that an earlier process accepted, and that is still in the spool.
type SpooledUpdate struct {
	UpdateDigest wire.Digest
	Norm         float64    // ‖v_k‖₂
	Codec        spec.Codec // of the payload
	RiskBefore   float64    // the local risk at the base model, reported by the agent
}

// NewCoordinator makes the machine of a run. record is
// JournalRecord{Run: …, Phase: CoordinatorIdle, Plan: …} for a new run, else what was last journaled; spooled are the
// updates of the record's round that are still here.
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
		// else it came in when others had taken its draws
		if c.record.Phase == CoordinatorCollecting && p.DrawCount > 0 {
			p.AcceptedUpdateDigest = u.UpdateDigest
		}
		if u.UpdateDigest == p.AcceptedUpdateDigest {
			p.UpdateNorm, p.UpdateCodec, p.ReportedRisk = u.Norm, u.Codec, u.RiskBefore
		}
	}
	return c
}

// JournalRecord returns the machine's present record, for status.
func (c *CoordinatorMachine) JournalRecord() JournalRecord {
	r := c.record
	r.Participants = slices.Clone(c.record.Participants)
	r.SidelinedAgents, r.EndedEdges = c.sidelinedAgentsFromRound(0), c.endedEdgesFromRound(0)
	return r
}

// Deadline returns when the machine wants a Tick, if nothing comes before.
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

// Step takes one event and returns what the host has to do, in order.
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

// saveJournalRecord saves the record, and then tells the history of the round that it
// ended, and throws away what only the record before it needed.
func (c *CoordinatorMachine) saveJournalRecord(now time.Time) {
	c.nominateCandidate(now)
	c.emitEffect(SaveJournalRecord{c.JournalRecord()})
	if c.roundAwaitingDiscard != 0 {
		c.emitEffect(WriteHistory{c.record.Run, *c.record.LastOutcome, c.record.RunStopReason})
		c.emitEffect(DiscardRoundSpool{c.roundAwaitingDiscard})
		c.roundAwaitingDiscard = 0
	}
}

// enterPhase changes the phase and clears the timers of the one before.
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

// startOrResumeRun begins the run or takes up the journaled round where it stood.
func (c *CoordinatorMachine) startOrResumeRun(now time.Time) {
	c.phaseEnteredAt, c.announcement.roundAnnouncedAt, c.helloGraceEndsAt = now, now, now.Add(c.cfg.Gather.WindowLength)
	c.startRolloutTrial(now)
	if s := &c.record.Rollout; s.Released.IsSet() {
		c.reportEvent(RolloutBegan{Candidate: s.Candidate.ModelRef, Released: s.Released.ModelRef,
			MinDecidingAgents: c.cfg.Rollout.MinDecidingAgents, IsResumed: true})
	}
	if c.record.LastOutcome != nil { // the process before may have been killed between the journal and the history
		c.emitEffect(WriteHistory{c.record.Run, *c.record.LastOutcome, c.record.RunStopReason})
	}
	c.record.StopState.Resume(&c.cfg.Stop, now)
	if c.cfg.Stop.IsEnabled() {
		c.reportEvent(StopProgressReported{c.cfg.Stop, c.record.StopState})
	}
	switch c.record.Phase {
	case CoordinatorCollecting:
		// The same round with the same participants: only the announcement is new.
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
			c.startNextRound(now) // more rounds are asked for than before
			return
		}
		c.record.Attempt++ // sealed anew it has another digest: agents would call it a conflict
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
		false // the announcement goes out again with the link
	c.helloWindow.openedAt = time.Time{}
	if up {
		c.resendAcceptances()
	}
	if up && c.mixing.pendingParticipants == nil && c.isInPhase(CoordinatorGathering) {
		c.phaseDeadline = now.Add(c.cfg.Gather.WindowLength) // the window counts while agents can be heard
	}
}

// runDueTimers does what the time asks for.
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

// roundOutcomeRef is that of a round, whole: the host has it pulled if it is large.
func (c *CoordinatorMachine) roundOutcomeRef(of wire.RoundID) wire.BlobRef {
	n := len(c.record.RecentOutcomes)
	if n == 0 || c.record.RecentOutcomes[n-1].Round != of {
		return wire.BlobRef{}
	}
	body := c.record.RecentOutcomes[n-1].Outcome
	return wire.BlobRef{Hash: wire.BlobDigest(body), Length: uint32(len(body)), Inline: body}
}

// announcePhase makes the announcement of the present record.
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

// timedPhases are the phases whose duration the machine decides, and not an operator.
var timedPhases = []CoordinatorPhase{CoordinatorIdle, CoordinatorGathering, CoordinatorCollecting, CoordinatorClosing}

// PhaseEntered: the machine changed its phase.
type PhaseEntered struct {
	Phase, PreviousPhase  CoordinatorPhase
	PreviousPhaseDuration time.Duration
}

// Describe implements observe.Event. The journaled phase is entered and left in one step at a start: its duration of 0
// is not observed.
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
