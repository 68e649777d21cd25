package agentround

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Intervals between hello messages. An agent repeats its hello message with backoff until the coordinator answers. It
// then repeats the hello message at helloRepeatInterval, in case the coordinator has forgotten the agent.
const (
	firstHelloRetryInterval = 5 * time.Second
	maxHelloRetryInterval   = time.Minute
	helloRepeatInterval     = 10 * time.Minute
	// helloIntervalOverBudget replaces helloRepeatInterval when the uplink budget is spent.
	helloIntervalOverBudget = 2 * time.Hour
)

// Machine is the state machine of an agent. It is not safe for concurrent use: one goroutine owns it.
type Machine struct {
	rng    *rand.Rand
	linkUp bool

	// position of the newest announcement that the agent has followed; the agent ignores older announcements
	obeyedPosition           wire.AnnouncementPosition
	obeyedAnnouncementDigest wire.Digest // digest of the announcement at obeyedPosition
	// savedPosition is the newest announcement position on disk. The agent sends no updates of later rounds.
	savedPosition          wire.AnnouncementPosition
	positionSaveFailed     bool // whether saving obeyedPosition failed; the agent then starts no work
	currentAnnouncement    *AnnouncementReceived
	pendingInvitation      *InvitationReceived // invitation that the agent cannot answer yet; nil means none
	pendingInvitationSince time.Time
	endedEdges             []wire.EndedEdge // mixing edges that the newest invitation excludes

	uplinkBytesLeft      uint64 // number of bytes that the agent may still send
	uplinkBudgetTooSmall bool   // whether uplinkBytesLeft is too small for a round
	// reason for declining rounds, by the name of the owner's rule that forbids the rounds
	declineReasonByOwnerRule map[string]wire.DeclineReason
	task                     taskState
	currentWork              *roundWork
	// work in a round that ended while the connection was down; the agent does not know whether the update was
	// aggregated
	workAwaitingFate *roundWork
	savedUpdate      *SavedUpdate // update that the previous process saved for a round that is not announced yet

	lastHelloRows          uint64 // number of rows in the last hello message
	rowsKnownToCoordinator uint64 // number of rows that the coordinator last acknowledged; 0 means unknown
	// threshold of the last response lottery that the agent won; 0 means that the agent always answers
	lotteryThreshold   uint32
	lotteryLost        bool // whether the agent lost the last response lottery, so that it gives no answer
	disconnectState    disconnectState
	lotteryDraw        lotteryDraw
	awaitsHelloAnswer  bool      // whether the agent repeats its hello message until the coordinator answers
	isHelloDue         bool      // whether a new hello message is due
	helloSent          bool      // whether the due hello message was sent at least once
	nextHelloAt        time.Time // time of the next hello message
	helloRetryInterval time.Duration

	// correctiveHelloAt is the time of a hello message that either informs the coordinator of a newer announcement or
	// requests missing parts of the task. Zero means that no such message is due.
	correctiveHelloAt       time.Time
	noCorrectiveHelloBefore time.Time // earliest time of the next corrective hello message

	effects []Effect
}

// taskState describes the announced task and whether the local data fit it.
type taskState struct {
	taskDigest         wire.Digest
	hostHasCheckedTask bool // whether the host has compared the local data with the task
	unfitReason        wire.DeclineReason
	localRowCount      uint64

	statisticsUpdateBytes uint32 // size of an update in a statistics round, in bytes
}

// roundWork is the agent's work in one round, from the invitation until the coordinator has accepted or refused the
// update.
type roundWork struct {
	epoch           wire.Epoch
	run             wire.RunID
	round           wire.RoundID
	baseModelDigest wire.Digest
	kind            wire.RoundKind
	state           workState
	invitation      InvitationReceived
	deadline        time.Time
	updateDigest    wire.Digest
	// whether the agent has offered the update to the coordinator, perhaps in an earlier attempt of the round
	updateOffered        bool
	declineReason        wire.DeclineReason
	nextAnswerAt         time.Time     // time of the next joined or declined message; zero means none is due
	declineRetryInterval time.Duration // time until a declined message is repeated
	// whether the connection was lost while the update was sent, so that the coordinator's answer may be lost
	connectionWasLost bool
	endReported       bool // whether the end of this work was reported as an event
}

type workState uint8

const (
	workFetching workState = iota
	workTraining
	workHoldingUpdate // the update is complete, but the agent must not or cannot send it yet
	workSubmitting
	workAccepted
	workDeclinedOrRefused
)

// SavedUpdate describes an update that the agent saved to disk before a restart.
type SavedUpdate struct {
	Epoch           wire.Epoch // epoch of the coordinator for which the update was made
	Run             wire.RunID
	Round           wire.RoundID
	BaseModelDigest wire.Digest
	UpdateDigest    wire.Digest
}

// New returns the state machine of an agent. The parameters floor and digest identify the last announcement saved by
// SaveAnnouncementPosition; they are zero at the first start. The parameter saved is an update that an earlier process
// left on disk, or nil. The random source rng spreads the hello messages of many agents over time.
func New(floor wire.AnnouncementPosition, digest wire.Digest, saved *SavedUpdate, rng *rand.Rand) *Machine {
	return &Machine{uplinkBytesLeft: math.MaxUint64, rng: rng, obeyedPosition: floor, obeyedAnnouncementDigest: digest,
		savedPosition: floor, savedUpdate: saved}
}

// Deadline returns the time at which the caller must deliver the next Tick event. It returns false if no Tick is
// needed.
func (a *Machine) Deadline() (time.Time, bool) {
	var at time.Time
	if a.maySendHello() {
		at = a.nextHelloAt
	}
	if a.linkUp && !a.correctiveHelloAt.IsZero() && (at.IsZero() || a.correctiveHelloAt.Before(at)) {
		at = a.correctiveHelloAt
	}
	if w := a.currentWork; w != nil && w.state <= workTraining && (at.IsZero() || w.deadline.Before(at)) {
		at = w.deadline
	}
	if w := a.currentWork; w != nil && a.linkUp && !w.nextAnswerAt.IsZero() && (at.IsZero() ||
		w.nextAnswerAt.Before(at)) {
		at = w.nextAnswerAt
	}
	return at, !at.IsZero()
}

// Step processes one event and returns the effects that the caller must perform, in order.
func (a *Machine) Step(now time.Time, ev Event) []Effect {
	a.effects = nil
	switch e := ev.(type) {
	case LinkUp:
		a.linkUp, a.isHelloDue, a.disconnectState.announcementReceived, a.disconnectState.disconnectRequested = true,
			true, false,
			false
	case LinkDown:
		// Cancel corrective hello messages, since the broker sends the retained announcement again after a
		// reconnection.
		a.linkUp, a.correctiveHelloAt, a.noCorrectiveHelloBefore = false, time.Time{}, time.Time{}
		if w := a.currentWork; w != nil && w.state == workSubmitting {
			w.connectionWasLost = true
		}
	case AnnouncementReceived:
		a.disconnectState.announcementReceived = true
		a.handleAnnouncement(now, e)
	case AnnouncementPositionSaved:
		a.handlePositionSaved(now, e)
	case InvitationReceived:
		a.handleInvitation(now, e)
	case RoundStandingReceived:
		a.endHelloRetriesIfCurrent(now, e.AnnouncementDigest)
		a.rowsKnownToCoordinator = e.KnownRowCount
		a.handleRoundStanding(e)
	case UpdateAcceptanceReceived:
		a.handleUpdateAccepted(now, e)
	case UpdateRefusalReceived:
		a.handleUpdateRefused(now, e)
	case TaskChecked:
		a.handleTaskChecked(now, e)
	case FetchStalled:
		a.isHelloDue, a.awaitsHelloAnswer = true, a.awaitsHelloAnswer || e.NeededBeyondRound
	case DownloadDataMissing:
		a.correctiveHelloAt = now
	case UpdateFateUnknown:
		a.isHelloDue, a.awaitsHelloAnswer = true, true
	case NeighborsChanged, EvaluationDone, NewRowsAvailable:
		a.isHelloDue = true
	case UplinkBudgetChanged:
		a.setUplinkBudget(e)
	case OwnerRuleChanged:
		before := a.unfitReason()
		a.applyOwnerRule(e)
		a.isHelloDue = a.isHelloDue || a.unfitReason() != before
	case ModelFetched:
		a.handleModelFetched(now, e)
	case TrainingEnded:
		a.handleTrainingEnded(now, e)
	}
	a.runDueTimers(now)
	a.requestDisconnect()
	return a.effects
}

func (a *Machine) emitEffect(e Effect)         { a.effects = append(a.effects, e) }
func (a *Machine) reportEvent(f observe.Event) { a.emitEffect(ReportEvent{f}) }

// maySendHello reports whether the agent can send a hello message: it is connected, and the host has checked the task.
func (a *Machine) maySendHello() bool {
	return a.linkUp && a.currentAnnouncement != nil && a.task.hostHasCheckedTask && !a.SendsNoHello()
}

// runDueTimers performs all actions whose scheduled time has passed.
func (a *Machine) runDueTimers(now time.Time) {
	if w := a.currentWork; w != nil && w.state <= workTraining && !now.Before(w.deadline) {
		a.declineRound(now, wire.DeclineNoTime)
	}
	a.sendDueAnswer(now)
	a.sendCorrectiveHello(now)
	if !a.maySendHello() {
		return
	}
	// Delay the hello message by a random time, since its cause often affects all agents at the same time.
	if a.isHelloDue {
		within := time.Duration(a.currentAnnouncement.Announcement.HelloSpreadMillis) * time.Millisecond
		a.isHelloDue, a.helloSent, a.helloRetryInterval, a.nextHelloAt = false, false, firstHelloRetryInterval,
			now.Add(a.jitter(within))
	}
	if !a.nextHelloAt.IsZero() && !now.Before(a.nextHelloAt) {
		a.sendHello()
		a.helloSent = true
		a.nextHelloAt = now.Add(a.helloRetryInterval*3/4 + a.jitter(a.helloRetryInterval/2))
		a.helloRetryInterval = min(2*a.helloRetryInterval, a.extendWaitIfBudgetSpent(maxHelloRetryInterval))
	}
}

func (a *Machine) jitter(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return time.Duration(a.rng.Int64N(int64(most)))
}

func (a *Machine) sendHello() {
	// The coordinator knows the new number of rows only after it has answered this hello.
	if a.lastHelloRows != a.task.localRowCount {
		a.lastHelloRows, a.rowsKnownToCoordinator = a.task.localRowCount, 0
	}
	h := SendHello{AnnouncementDigest: a.obeyedAnnouncementDigest, Position: a.obeyedPosition,
		UnfitReason:      a.unfitReason(),
		RowCount:         a.task.localRowCount,
		LotteryThreshold: a.lotteryThreshold}
	if w := a.currentWork; w != nil {
		h.UpdateDigest = w.updateDigest
	}
	a.emitEffect(h)
}

// endHelloRetriesIfCurrent stops repeating the hello message if the coordinator's answer refers to the current
// announcement.
func (a *Machine) endHelloRetriesIfCurrent(now time.Time, announcement wire.Digest) {
	if a.currentAnnouncement != nil && a.currentAnnouncement.EnvelopeDigest == announcement {
		a.endHelloRetries(now)
	}
}

// extendWaitIfBudgetSpent returns the duration d, or a longer interval if the uplink budget is spent, since hello
// messages also use the budget.
func (a *Machine) extendWaitIfBudgetSpent(d time.Duration) time.Duration {
	if a.uplinkBytesLeft == 0 {
		return helloIntervalOverBudget
	}
	return d
}

// endHelloRetries stops repeating a hello message that the coordinator has answered, and schedules the next regular
// hello. It does nothing if a new hello message is due.
func (a *Machine) endHelloRetries(now time.Time) {
	if a.helloSent && !a.isHelloDue {
		a.awaitsHelloAnswer = false
		a.giveUpAwaitedFate()
		rest := a.extendWaitIfBudgetSpent(helloRepeatInterval)
		a.helloRetryInterval, a.nextHelloAt = firstHelloRetryInterval, now.Add(rest*3/4+a.jitter(rest/2))
	}
}
