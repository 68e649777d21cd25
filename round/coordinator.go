package round

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/wire"
)

// Coordinator is the parameter server's machine. It is not safe for concurrent
// use: one goroutine owns it.
type Coordinator struct {
	cfg      Config
	rec      Record
	roster   roster
	progress roundProgress
	// sidelined contains agents that spoiled a round, including those that may be drawn again.
	sidelined               map[wire.AgentID]Sidelined
	linkUp                  bool
	recoveredRoundAbandoned bool // the round found at the start is abandoned
	hellosRequested         bool // this process has asked all agents for a hello
	announcement            announcementState
	roundAwaitingDiscard    wire.RoundID // its spool is removed with the next record; 0 = none

	phaseEnteredAt       time.Time      // when the current phase began
	deadlinePassed       bool           // the round's deadline has passed
	phaseDeadline        time.Time      // deadline of the current phase
	pause                deadlinePause  // of the round's deadline
	reinviteAt           time.Time      // when agents that have not answered are invited again; zero = never
	consecutiveAbandons  int            // number of rounds that were abandoned in a row
	retryAt              time.Time      // earliest time of the next round, after an abandoned one
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
	phase       wire.AnnouncementPhase
	namesDrawn  bool      // it names the drawn agents
	published   bool      // the broker has received it over the current connection
	publishedAt time.Time // when the broker received it; zero before
	// roundAnnouncedAt is when this process first announced the round.
	roundAnnouncedAt time.Time
}

// SpooledUpdate is an update that a process before this one has held, and that is still here.
type SpooledUpdate struct {
	Update wire.Digest
	Norm   float64 // ‖v_k‖₂
}

// NewCoordinator makes the machine of a run. record is
// Record{Run: …, Phase: CoordinatorIdle, Plan: …} for a new run, else what was last journaled; spooled are the updates
// of the record's round that are still here.
func NewCoordinator(cfg Config, record Record, spooled map[wire.AgentID]SpooledUpdate) *Coordinator {
	c := &Coordinator{cfg: cfg, rec: record, roster: roster{members: map[wire.AgentID]*rosterMember{},
		minNewRows: uint64(cfg.Schedule.NewRows.MinRowsPerAgent)},
		sidelined: map[wire.AgentID]Sidelined{}, mixing: mixingState{endedEdgeByEnds: map[edgeKey]EndedEdge{}}}
	for _, s := range record.Sidelined {
		c.sidelined[s.Agent] = s
	}
	for _, e := range record.Left {
		c.mixing.endedEdgeByEnds[edgeKey{e.A, e.B}] = e
	}
	c.startCollectingEdgeReports()
	c.mixing.edgesMustChange = record.Plan.Endless && record.Block > 0 && c.clipHasChanged()
	if !cfg.Gather.Respond.On() {
		c.rec.Responding = ResponseLottery{}
	}
	if !cfg.Rollout.On() {
		c.rec.Rollout = rollout.State{}
	}
	c.rec.Participants = slices.Clone(record.Participants)
	for i := range c.rec.Participants {
		p := &c.rec.Participants[i]
		u := spooled[p.Agent]
		if c.rec.Phase == CoordinatorCollecting && p.Times > 0 { // else it came in when others had taken its draws
			p.Accepted = u.Update
		}
		if u.Update == p.Accepted {
			p.Norm = u.Norm
		}
	}
	return c
}

// Record returns the machine's present record, for status.
func (c *Coordinator) Record() Record {
	r := c.rec
	r.Participants = slices.Clone(c.rec.Participants)
	r.Sidelined, r.Left = c.sidelinedList(0), c.endedEdgesFrom(0)
	return r
}

// Deadline returns when the machine wants a Tick, if nothing comes before.
func (c *Coordinator) Deadline() (time.Time, bool) {
	var at time.Time
	for _, t := range []time.Time{c.phaseDeadline, c.reinviteAt, c.mixing.reportsDeadline, c.retryAt,
		c.rolloutTrial.judgeAt,
		c.evaluationState.returnGraceEndsAt, c.evaluationState.endsAt, c.runEndsAt()} {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at, !at.IsZero()
}

// Step takes one event and returns what the host has to do, in order.
func (c *Coordinator) Step(now time.Time, ev Event) []Effect {
	c.effects = nil
	switch e := ev.(type) {
	case Start:
		c.startOrResume(now)
	case LinkUp:
		c.setLink(now, true)
	case LinkDown:
		c.setLink(now, false)
	case StorageFailed:
		c.pause.hostFailingSince = e.Since
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
	case OfferReceived:
		c.handleOffer(now, e)
	case UpdateStored:
		c.handleUpdateStored(now, e)
	case UpdateRejected:
		c.handleUpdateRejected(now, e)
	case CourseChanged:
		c.handleCourseChanged(now, e)
	case EdgesReady:
		c.handleEdgesReady(now, e)
	case EdgesAheadReady:
		c.mixing.requestPending = false
	case Aggregated:
		c.handleAggregated(now, e)
	}
	c.tick(now)
	c.requestEdgesAhead()
	return c.effects
}

func (c *Coordinator) emit(e Effect)                     { c.effects = append(c.effects, e) }
func (c *Coordinator) report(f observe.Event)            { c.emit(ReportEvent{f}) }
func (c *Coordinator) isInPhase(p CoordinatorPhase) bool { return c.rec.Phase == p }

// saveJournalRecord saves the record, and then tells the history of the round that it
// ended, and throws away what only the record before it needed.
func (c *Coordinator) saveJournalRecord(now time.Time) {
	c.nominateCandidate(now)
	c.emit(SaveJournalRecord{c.Record()})
	if c.roundAwaitingDiscard != 0 {
		c.emit(WriteHistory{c.rec.Run, *c.rec.Last, c.rec.Ended})
		c.emit(DiscardRound{c.roundAwaitingDiscard})
		c.roundAwaitingDiscard = 0
	}
}

// enter changes the phase and clears the timers of the one before.
func (c *Coordinator) enter(now time.Time, p CoordinatorPhase) {
	before := c.rec.Phase
	c.rec.Phase, c.phaseDeadline, c.reinviteAt, c.pause.deadlineHeldSince = p, time.Time{}, time.Time{}, time.Time{}
	c.mixing.reportsDeadline = time.Time{}
	if !c.phaseEnteredAt.IsZero() {
		c.report(PhaseEntered{Phase: p, PreviousPhase: before, PreviousPhaseDuration: now.Sub(c.phaseEnteredAt)})
	}
	c.phaseEnteredAt = now
}

// startOrResume begins the run or takes up the journaled round where it stood.
func (c *Coordinator) startOrResume(now time.Time) {
	c.phaseEnteredAt, c.announcement.roundAnnouncedAt, c.helloGraceEndsAt = now, now, now.Add(c.cfg.Gather.WindowLength)
	c.startRolloutTrial(now)
	if s := &c.rec.Rollout; s.Released.Present() {
		c.report(RolloutBegan{Candidate: s.Candidate.ModelName, Released: s.Released.ModelName,
			MinDecidingAgents: c.cfg.Rollout.MinDecidingAgents, Resumed: true})
	}
	if c.rec.Last != nil { // the process before may have been killed between the journal and the history
		c.emit(WriteHistory{c.rec.Run, *c.rec.Last, c.rec.Ended})
	}
	c.rec.Stop.Resume(&c.cfg.Stop, now)
	if c.cfg.Stop.On() {
		c.report(StopProgressReported{c.cfg.Stop, c.rec.Stop})
	}
	switch c.rec.Phase {
	case CoordinatorCollecting:
		// The same round with the same participants: only the announcement is new.
		c.rec.Attempt++
		c.startCollecting(now)
		if c.recoveredRoundAbandoned && c.cfg.Course != CourseGo {
			c.abandon(now, AbandonAsked, nil)
			return
		}
		c.closeIfReady(now)
	case CoordinatorFinished:
		why := c.runStopReason(now)
		if why == "" {
			c.rec.Ended = ""
			c.startNextRound(now) // more rounds are asked for than before
			return
		}
		c.rec.Attempt++ // sealed anew it has another digest: agents would call it a conflict
		c.finish(now, why)
	case CoordinatorGathering:
		if c.pauseOrStopByCourse(now) {
			return
		}
		c.rec.Attempt++
		c.startGathering(now)
	default:
		c.startNextRound(now)
	}
}

func (c *Coordinator) setLink(now time.Time, up bool) {
	c.linkUp, c.pause.roundInterrupted, c.announcement.published = up, c.pause.roundInterrupted || !up,
		false // the announcement goes out again with the link
	c.helloWindow.openedAt = time.Time{}
	if up {
		c.repeatAcceptances()
	}
	if up && c.mixing.pendingParticipants == nil && c.isInPhase(CoordinatorGathering) {
		c.phaseDeadline = now.Add(c.cfg.Gather.WindowLength) // the window counts while agents can be heard
	}
}

// tick does what the time asks for.
func (c *Coordinator) tick(now time.Time) {
	c.judgeCandidate(now)
	c.tickEvaluation(now)
	if why := c.runStopReason(now); why != "" && c.isBetweenRounds() {
		c.finish(now, why)
	}
	due := !c.phaseDeadline.IsZero() && !now.Before(c.phaseDeadline)
	switch c.rec.Phase {
	case CoordinatorIdle:
		if due || c.newRowsSuffice() {
			c.startNextRound(now)
		}
	case CoordinatorGathering:
		c.openIfGathered(now, due)
	case CoordinatorCollecting:
		if due {
			c.handleDeadline(now)
		} else if !c.mixing.reportsDeadline.IsZero() && !now.Before(c.mixing.reportsDeadline) {
			c.closeIfReady(now)
		} else if !c.reinviteAt.IsZero() && !now.Before(c.reinviteAt) {
			c.inviteSilent(now)
		}
	}
}

// outcomeRef is that of a round, whole: the host has it pulled if it is large.
func (c *Coordinator) outcomeRef(of wire.RoundID) wire.BlobRef {
	n := len(c.rec.Outcomes)
	if n == 0 || c.rec.Outcomes[n-1].Round != of {
		return wire.BlobRef{}
	}
	body := c.rec.Outcomes[n-1].Outcome
	return wire.BlobRef{Hash: wire.BlobDigest(body), Length: uint32(len(body)), Inline: body}
}

// announceRecord makes the announcement of the present record.
func (c *Coordinator) announceRecord(now time.Time, phase wire.AnnouncementPhase) {
	p, rows := &c.rec.Plan, c.startEvaluation(now, phase)
	var folded wire.RoundID
	if c.rec.Last != nil {
		folded = c.rec.Last.Round
	}
	drawn, credit := c.announcedSelection()
	c.announcement.phase, c.announcement.namesDrawn, c.announcement.published, c.announcement.publishedAt = phase,
		drawn != nil, false, time.Time{}
	c.emit(Announce{Round: c.rec.Round, SelectedAgents: drawn, Announcement: wire.Announcement{
		Attempt: c.rec.Attempt, Phase: phase, Kind: p.Kind, BaseModelVersion: p.Version, Task: p.Task,
		BaseModel: p.trainingBase(),
		Schema:    p.Schema, LastEndedRound: folded, LastRoundOutcome: c.outcomeRef(folded),
		Seed: c.cfg.Seed, StepOffset: p.Offset,
		HelloSpreadMillis:   uint32(c.cfg.Gather.HelloSpread.Milliseconds()),
		RoundTimeoutMillis:  uint32(c.cfg.Deadline.Milliseconds()),
		InitialCreditChunks: credit, MinNewRows: uint32(c.cfg.Schedule.NewRows.MinRowsPerAgent),
		MinEvaluationRows: rows,
		Respond:           c.announcedResponse(),
		Rollout:           c.rec.Rollout.Announcement(&c.cfg.Rollout),
		ReleasedModelFile: c.rec.Rollout.Released.File, CandidateModelFile: c.rec.Rollout.Candidate.File,
	}})
}

var (
	coordinatorPhase = observe.GaugeByLabel("phase",
		"The phase of the run: 1 for the present one, 0 for all others.", "phase", observe.Strings(CoordinatorPhases()))
	phaseDuration = observe.HistogramByLabel("phase_duration_seconds",
		"Time spent in a phase, observed when it is left; of the last one, and of a pause, it never is.",
		roundBuckets, "phase", observe.Strings(timedPhases))
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
func (e PhaseEntered) Describe(d *observe.Description) {
	d.Select(coordinatorPhase, string(e.Phase))
	if e.Phase != CoordinatorIdle {
		d.Select(scheduleWaiting, "")
	}
	if e.PreviousPhaseDuration > 0 && slices.Contains(timedPhases, e.PreviousPhase) {
		d.Observe(phaseDuration, e.PreviousPhaseDuration.Seconds(), string(e.PreviousPhase))
	}
}
