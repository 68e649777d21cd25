package round

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Waits of an agent's hello: until it is answered, and until it is said again
// once more: a coordinator that has forgotten the agent (after its restart, or
// a late word that the agent is lost) learns of it again.
const (
	helloFirst = 5 * time.Second
	helloMost  = time.Minute
	helloRest  = 10 * time.Minute
	helloSpent = 2 * time.Hour // instead of it, when the budget is spent
)

// Agent is a device's machine. It is not safe for concurrent use: one
// goroutine owns it.
type Agent struct {
	rng    *rand.Rand
	linkUp bool

	floor       wire.Order  // nothing older is obeyed
	floorDigest wire.Digest // of the announcement at the floor
	placed      wire.Order  // the newest place that is on disk: no update of a later round is offered
	unsaved     bool        // the floor could not be saved: nothing is begun for it
	current     *AnnouncementCame
	early       *Invited // came before it could be answered
	earlyAt     time.Time
	lost        []wire.EndedEdge // as its newest invitation says

	left            uint64             // bytes that the uplink may carry
	short           bool               // which are fewer than a round takes
	barred          wire.DeclineReason // by the device's owner; 0 = it is not
	task            taskState
	work            *work
	awaitingOutcome *work        // its round ended while the link was down: the outcome of its update is not known yet
	saved           *SavedUpdate // of the process before this one, not yet matched

	saidRows    uint64 // of the last hello
	knownRows   uint64 // that the coordinator knows of, by its last word
	lotteryOf   uint32 // Respond.Of of the last lottery that chose the agent to answer; 0 = it always answers
	lotteryLost bool   // the last lottery did not choose the agent
	away        away
	luck        luck
	needsReply  bool      // the agent sends hellos until the coordinator has answered
	helloDue    bool      // a hello is owed
	helloSaid   bool      // since it was due, perhaps more than once
	helloAt     time.Time // of the next hello
	helloWait   time.Duration

	objectAt  time.Time // of a hello to an older announcement, or for parts of the task; zero = none is owed
	objectNot time.Time // no such hello before

	out []Effect
}

// taskState is what is known about the announced task.
type taskState struct {
	hash    wire.Digest
	ready   bool // the host has answered
	unfit   wire.DeclineReason
	samples uint64

	statistics uint32 // bytes of the update of a statistics round
}

// work is the agent's part in one round.
type work struct {
	epoch    wire.Epoch
	run      wire.RunID
	round    wire.RoundID
	base     wire.Digest
	kind     wire.Kind
	state    workState
	invited  Invited
	deadline time.Time
	update   wire.Digest
	offered  bool // the update was submitted, perhaps in an earlier attempt
	declined wire.DeclineReason
	sayAt    time.Time     // of the next word: joined, or declined once more; zero = none is owed
	sayWait  time.Duration // from that declined to the next
	cut      bool          // the link was down while its update was on its way: the answer may be lost
	told     bool          // its end is reported
}

type workState uint8

const (
	workFetching workState = iota
	workTraining
	workHolding // has its update, and is not asked for it, or its floor is not saved yet
	workSubmitting
	workAccepted
	workOut // declined or refused
)

// SavedUpdate is an update that an earlier process left on disk.
type SavedUpdate struct {
	Epoch  wire.Epoch // of the coordinator that it was made for
	Run    wire.RunID
	Round  wire.RoundID
	Base   wire.Digest
	Update wire.Digest
}

// NewAgent makes an agent's machine. floor and digest are those of the last
// Obey effect, zero at the first start; saved is an update that was not
// released, or nil. rng jitters the hellos.
func NewAgent(floor wire.Order, digest wire.Digest, saved *SavedUpdate, rng *rand.Rand) *Agent {
	return &Agent{left: math.MaxUint64, rng: rng, floor: floor, floorDigest: digest, placed: floor, saved: saved}
}

// Deadline returns when the machine wants a Tick, if nothing comes before.
func (a *Agent) Deadline() (time.Time, bool) {
	var at time.Time
	if a.maySpeak() {
		at = a.helloAt
	}
	if a.linkUp && !a.objectAt.IsZero() && (at.IsZero() || a.objectAt.Before(at)) {
		at = a.objectAt
	}
	if w := a.work; w != nil && w.state <= workTraining && (at.IsZero() || w.deadline.Before(at)) {
		at = w.deadline
	}
	if w := a.work; w != nil && a.linkUp && !w.sayAt.IsZero() && (at.IsZero() || w.sayAt.Before(at)) {
		at = w.sayAt
	}
	return at, !at.IsZero()
}

// Step takes one event and returns what the host has to do, in order.
func (a *Agent) Step(now time.Time, ev Event) []Effect {
	a.out = nil
	switch e := ev.(type) {
	case LinkUp:
		a.linkUp, a.helloDue, a.away.read, a.away.leaves = true, true, false, false
	case LinkDown:
		// what is retained comes again with the link
		a.linkUp, a.objectAt, a.objectNot = false, time.Time{}, time.Time{}
		if w := a.work; w != nil && w.state == workSubmitting {
			w.cut = true
		}
	case AnnouncementCame:
		a.away.read = true
		a.announced(now, e)
	case Obeyed:
		a.obeyed(now, e)
	case Invited:
		a.invited(now, e)
	case StandingCame:
		a.answered(now, e.Announcement)
		a.knownRows = e.Samples
		a.stood(e)
	case AcceptedCame:
		a.accepted(now, e)
	case RefusedCame:
		a.refused(now, e)
	case Prepared:
		a.prepared(now, e)
	case Stranded:
		a.helloDue, a.needsReply = true, a.needsReply || e.Beyond
	case Lacking:
		a.objectAt = now
	case Unread:
		a.helloDue, a.needsReply = true, true
	case NeighborsFound, Evaluated, RowsCame:
		a.helloDue = true
	case Budgeted:
		a.budgeted(e)
	case Barred:
		before := a.unfit()
		a.barred = e.Reason
		a.helloDue = a.helloDue || a.unfit() != before
	case Fetched:
		a.fetched(now, e)
	case Trained:
		a.trained(now, e)
	}
	a.tick(now)
	a.leave()
	return a.out
}

func (a *Agent) do(e Effect)        { a.out = append(a.out, e) }
func (a *Agent) report(f AgentFact) { a.do(Report[AgentFact]{f}) }

// maySpeak reports whether a hello can be said, and has something to say.
func (a *Agent) maySpeak() bool {
	return a.linkUp && a.current != nil && a.task.ready && !a.Silent()
}

// tick does what the time asks for.
func (a *Agent) tick(now time.Time) {
	if w := a.work; w != nil && w.state <= workTraining && !now.Before(w.deadline) {
		a.decline(now, wire.DeclineNoTime)
	}
	a.sayAgain(now)
	a.object(now)
	if !a.maySpeak() {
		return
	}
	if a.helloDue { // jittered, since what makes it due often comes to all agents at once
		within := time.Duration(a.current.Announcement.HelloWithin) * time.Millisecond
		a.helloDue, a.helloSaid, a.helloWait, a.helloAt = false, false, helloFirst, now.Add(a.jitter(within))
	}
	if !a.helloAt.IsZero() && !now.Before(a.helloAt) {
		a.sayHello()
		a.helloSaid = true
		a.helloAt = now.Add(a.helloWait*3/4 + a.jitter(a.helloWait/2))
		a.helloWait = min(2*a.helloWait, a.seldom(helloMost))
	}
}

func (a *Agent) jitter(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return time.Duration(a.rng.Int64N(int64(most)))
}

func (a *Agent) sayHello() {
	if a.saidRows != a.task.samples { // only an answer to this hello tells that it was heard
		a.saidRows, a.knownRows = a.task.samples, 0
	}
	h := SayHello{Announcement: a.floorDigest, Order: a.floor, Unfit: a.unfit(), Samples: a.task.samples,
		Respond: a.lotteryOf}
	if w := a.work; w != nil {
		h.Update = w.update
	}
	a.do(h)
}

// answered takes word from the coordinator about an announcement.
func (a *Agent) answered(now time.Time, announcement wire.Digest) {
	if a.current != nil && a.current.Digest == announcement {
		a.heard(now)
	}
}

// seldom stretches a wait when the budget is spent: even hellos cost.
func (a *Agent) seldom(d time.Duration) time.Duration {
	if a.left == 0 {
		return helloSpent
	}
	return d
}

// heard ends the repetition of the hello: the coordinator knows this agent.
// A hello that is due may have news, and is said. An update that was offered with the link again is answered before.
func (a *Agent) heard(now time.Time) {
	if a.helloSaid && !a.helloDue {
		a.needsReply = false
		a.giveUp()
		rest := a.seldom(helloRest)
		a.helloWait, a.helloAt = helloFirst, now.Add(rest*3/4+a.jitter(rest/2))
	}
}
