package agentround

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// An agent repeats its hello until the coordinator answers, with waits from firstHelloRetryInterval to
// maxHelloRetryInterval. It then repeats the hello at the interval helloRepeatInterval, because the coordinator may
// have forgotten the agent: after a restart, or after a late message of the broker that the agent is lost.
const (
	firstHelloRetryInterval = 5 * time.Second
	maxHelloRetryInterval   = time.Minute
	helloRepeatInterval     = 10 * time.Minute
	helloIntervalOverBudget = 2 * time.Hour // in place of helloRepeatInterval while the uplink budget is spent
)

// Machine is the state machine of an agent. It is not safe for concurrent use: one goroutine owns it.
type Machine struct {
	rng    *rand.Rand
	linkUp bool

	obeyedPosition           wire.AnnouncementPosition // nothing older is obeyed
	obeyedAnnouncementDigest wire.Digest               // of the announcement at the floor
	// the newest place that is on disk: no update of a later round is offered
	savedPosition          wire.AnnouncementPosition
	positionSaveFailed     bool // the floor could not be saved: nothing is begun for it
	currentAnnouncement    *AnnouncementReceived
	pendingInvitation      *InvitationReceived // came before it could be answered
	pendingInvitationSince time.Time
	endedEdges             []wire.EndedEdge // as its newest invitation says

	uplinkBytesLeft      uint64 // bytes that the uplink may carry
	uplinkBudgetTooSmall bool   // which are fewer than a round takes
	// the owner's rules that bar the device from a round, by name
	declineReasonByOwnerRule map[string]wire.DeclineReason
	task                     taskState
	currentWork              *roundWork
	// its round ended while the link was down: the outcome of its update is not known yet
	workAwaitingFate *roundWork
	savedUpdate      *SavedUpdate // of the process before this one, not yet matched

	lastHelloRows          uint64 // of the last hello
	rowsKnownToCoordinator uint64 // that the coordinator knows of, by its last word
	// AnswerProbability of the last lottery that chose the agent to answer; 0 = it always answers
	lotteryThreshold   uint32
	lotteryLost        bool // the last lottery did not choose the agent
	disconnectState    disconnectState
	lotteryDraw        lotteryDraw
	awaitsHelloAnswer  bool      // the agent sends hellos until the coordinator has answered
	isHelloDue         bool      // a hello is owed
	helloSent          bool      // since it was due, perhaps more than once
	nextHelloAt        time.Time // of the next hello
	helloRetryInterval time.Duration

	// of a hello to an older announcement, or for parts of the task; zero = none is owed
	correctiveHelloAt       time.Time
	noCorrectiveHelloBefore time.Time // no such hello before

	effects []Effect
}

// taskState is what is known about the announced task.
type taskState struct {
	taskDigest         wire.Digest
	hostHasCheckedTask bool // the host has answered
	unfitReason        wire.DeclineReason
	localRowCount      uint64

	statisticsUpdateBytes uint32 // bytes of the update of a statistics round
}

// roundWork is the agent's part in one round.
type roundWork struct {
	epoch                wire.Epoch
	run                  wire.RunID
	round                wire.RoundID
	baseModelDigest      wire.Digest
	kind                 wire.RoundKind
	state                workState
	invitation           InvitationReceived
	deadline             time.Time
	updateDigest         wire.Digest
	updateOffered        bool // the update was submitted, perhaps in an earlier attempt
	declineReason        wire.DeclineReason
	nextAnswerAt         time.Time     // of the next word: joined, or declined once more; zero = none is owed
	declineRetryInterval time.Duration // from that declined to the next
	connectionWasLost    bool          // the link was down while its update was on its way: the answer may be lost
	endReported          bool          // its end is reported
}

type workState uint8

const (
	workFetching workState = iota
	workTraining
	workHoldingUpdate // has its update, and is not asked for it, or its floor is not saved yet
	workSubmitting
	workAccepted
	workDeclinedOrRefused // declined or refused
)

// SavedUpdate is an update that an earlier process left on disk.
type SavedUpdate struct {
	Epoch           wire.Epoch // of the coordinator that it was made for
	Run             wire.RunID
	Round           wire.RoundID
	BaseModelDigest wire.Digest
	UpdateDigest    wire.Digest
}

// New returns the machine of an agent. floor and digest are the position and the digest of the last
// SaveAnnouncementPosition effect, or zero at the first start. saved is an update that was not released, or nil. rng
// spreads the hellos of many agents.
func New(floor wire.AnnouncementPosition, digest wire.Digest, saved *SavedUpdate, rng *rand.Rand) *Machine {
	return &Machine{uplinkBytesLeft: math.MaxUint64, rng: rng, obeyedPosition: floor, obeyedAnnouncementDigest: digest,
		savedPosition: floor, savedUpdate: saved}
}

// Deadline returns when the machine wants a Tick, if nothing comes before.
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

// Step takes one event and returns what the host has to do, in order.
func (a *Machine) Step(now time.Time, ev Event) []Effect {
	a.effects = nil
	switch e := ev.(type) {
	case LinkUp:
		a.linkUp, a.isHelloDue, a.disconnectState.announcementReceived, a.disconnectState.disconnectRequested = true,
			true, false,
			false
	case LinkDown:
		// what is retained comes again with the link
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

// maySendHello reports whether a hello can be said, and has something to say.
func (a *Machine) maySendHello() bool {
	return a.linkUp && a.currentAnnouncement != nil && a.task.hostHasCheckedTask && !a.SendsNoHello()
}

// runDueTimers does what the time asks for.
func (a *Machine) runDueTimers(now time.Time) {
	if w := a.currentWork; w != nil && w.state <= workTraining && !now.Before(w.deadline) {
		a.declineRound(now, wire.DeclineNoTime)
	}
	a.sendDueAnswer(now)
	a.sendCorrectiveHello(now)
	if !a.maySendHello() {
		return
	}
	if a.isHelloDue { // jittered, since what makes it due often comes to all agents at once
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
	if a.lastHelloRows != a.task.localRowCount { // only an answer to this hello tells that it was heard
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

// endHelloRetriesIfCurrent takes word from the coordinator about an announcement.
func (a *Machine) endHelloRetriesIfCurrent(now time.Time, announcement wire.Digest) {
	if a.currentAnnouncement != nil && a.currentAnnouncement.EnvelopeDigest == announcement {
		a.endHelloRetries(now)
	}
}

// extendWaitIfBudgetSpent stretches a wait when the budget is spent: even hellos cost.
func (a *Machine) extendWaitIfBudgetSpent(d time.Duration) time.Duration {
	if a.uplinkBytesLeft == 0 {
		return helloIntervalOverBudget
	}
	return d
}

// endHelloRetries ends the repetition of the hello: the coordinator knows this agent.
// A hello that is due may have news, and is said. An update that was offered with the link again is answered before.
func (a *Machine) endHelloRetries(now time.Time) {
	if a.helloSent && !a.isHelloDue {
		a.awaitsHelloAnswer = false
		a.giveUpAwaitedFate()
		rest := a.extendWaitIfBudgetSpent(helloRepeatInterval)
		a.helloRetryInterval, a.nextHelloAt = firstHelloRetryInterval, now.Add(rest*3/4+a.jitter(rest/2))
	}
}
