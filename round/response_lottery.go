package round

import (
	"math"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// PresencePolicy says which agents tell their presence.
type PresencePolicy string

// The words.
const (
	PresenceAll   PresencePolicy = "all"
	PresenceRound PresencePolicy = "round" // those with a part in a round
)

// ResponseConfig has a round of many agents hear some of them, and the others leave the broker for a while.
type ResponseConfig struct {
	// TargetHellos is how many hellos a round waits for; 0 = all agents say hello.
	TargetHellos int `yaml:"target"`
	// An agent without a part in the round may leave, and comes back after ReturnAfter and a random part of
	// ReturnWithin; both 0 = nobody leaves.
	ReturnAfter  time.Duration  `yaml:"return_after"`
	ReturnWithin time.Duration  `yaml:"return_within"`
	Presence     PresencePolicy `yaml:"presence"`
	// ListedAgents is how many agents there are before any has been heard; 0 = not known.
	ListedAgents int `yaml:"-"`
}

// On reports whether agents answer by chance.
func (r *ResponseConfig) On() bool { return r.TargetHellos > 0 }

// answers is 2³² times the probability of an agent's answer that is certain.
const answers = 1 << 32

// surplus is how many hellos are asked for, in targets: of 1,300 that are expected 1,000 come, for certain.
const surplus = 1.3

// validateRespond finds what does not go with rounds that hear a sample of the agents: what counts on hearing each of
// them.
func (c *Config) validateRespond(check *spec.ProblemList) {
	r := &c.Gather.Respond
	check.Require(r.TargetHellos >= 0, "gather.respond.target", "must not be negative, is %d (0 = all say hello)",
		r.TargetHellos)
	for key, d := range map[string]time.Duration{"return_after": r.ReturnAfter, "return_within": r.ReturnWithin} {
		check.Require(d >= 0 && d <= longest, "gather.respond."+key, "must be 0 to %s, is %s", longest, d)
		check.Require(d == 0 || r.On(), "gather.respond."+key,
			"is %s, but gather.respond.target is 0: an agent leaves only where not all are heard", d)
	}
	check.Require(r.Presence == PresenceAll || r.Presence == PresenceRound || r.Presence == "" && !r.On(),
		"gather.respond.presence", "must be all or round, is %q", r.Presence)
	check.Require(r.Presence != PresenceRound || r.On(), "gather.respond.presence",
		"is round, but gather.respond.target is 0: all agents have a part in rounds")
	if !r.On() {
		return
	}
	check.Require(r.TargetHellos >= c.Gather.Minimum && r.TargetHellos >= c.Participants+c.ExtraParticipants,
		"gather.respond.target",
		"must be at least gather.minimum (%d), and participants and over_select (%d), is %d", c.Gather.Minimum,
		c.Participants+c.ExtraParticipants, r.TargetHellos)
	check.Require(c.Gather.TargetAgents == 0, "gather.target",
		"does not go with gather.respond.target, which it would replace")
	check.Require(c.Algorithm == spec.FedAvg, "gather.respond.target",
		"goes with algorithm fedavg only: agents that mix are all heard")
	check.Require(c.Sampling != spec.Importance, "gather.respond.target",
		"does not go with sampling importance, which needs the last update of each agent")
	check.Require(!c.Schedule.NewRows.On(), "gather.respond.target",
		"does not go with schedule.new_rows, which counts the rows of all agents")
	check.Require(!c.Rollout.On(), "gather.respond.target", "does not go with rollout, which needs word of all agents")
}

// ResponseLottery is what the coordinator knows of agents that answer by chance.
type ResponseLottery struct {
	Of     uint32  `json:",omitempty"` // p·2³², as announced; 0 = all answer
	Agents float64 `json:",omitempty"` // N̂, those that would answer if all were asked; 0 = not known
}

// Probability is p.
func (r *ResponseLottery) Probability() float64 {
	if r.Of == 0 {
		return 1
	}
	return float64(r.Of) / answers
}

// helloWindow is the hellos since all were asked the last time.
type helloWindow struct {
	number          uint32
	openedAt        time.Time // the announcement is out; zero = it is not, or the link was lost since
	estimatedAgents float64   // Σ 1/p of those that were heard
}

// startResponseLottery makes p for a new round, and forgets who was heard for the one before: others are heard now.
func (c *Coordinator) startResponseLottery(now time.Time) {
	r := &c.cfg.Gather.Respond
	if !r.On() {
		c.rec.Responding = ResponseLottery{}
		return
	}
	c.estimateAgents(now)
	n := c.rec.Responding.Agents
	if n == 0 {
		n = float64(r.ListedAgents)
	}
	c.rec.Responding.Of = 0
	if wanted := surplus * float64(r.TargetHellos); wanted < n {
		c.rec.Responding.Of = uint32(max(1, math.Round(answers*wanted/n)))
	}
	c.roster.forget()
}

// doubleResponseShare doubles p: too few have answered.
func (c *Coordinator) doubleResponseShare(now time.Time) {
	if !c.cfg.Gather.Respond.On() {
		return
	}
	c.estimateAgents(now)
	if of := &c.rec.Responding.Of; *of >= answers/2 {
		*of = 0
	} else {
		*of *= 2
	}
}

// estimateAgents takes N̂ from the window: Σ 1/p over the agents heard (Horvitz and Thompson), divided by the share of
// the spread that has gone by; half of the estimate before stays, if there is one.
func (c *Coordinator) estimateAgents(now time.Time) {
	w, n := &c.helloWindow, &c.rec.Responding.Agents
	took := now.Sub(w.openedAt)
	if w.openedAt.IsZero() || took <= 0 {
		return
	}
	seen := w.estimatedAgents * max(1, float64(c.cfg.Gather.HelloSpread)/float64(took))
	if *n == 0 {
		*n = seen
	} else {
		*n = (*n + seen) / 2
	}
	w.openedAt = time.Time{}
}

// countHello takes a fit agent's first hello of the window. An agent that was drawn by another announcement counts
// once.
func (c *Coordinator) countHello(m *rosterMember, of uint32) {
	if w := &c.helloWindow; m.helloWindowNumber != w.number && m.isAvailable() {
		m.helloWindowNumber = w.number
		if of > 0 && of == c.rec.Responding.Of {
			w.estimatedAgents += 1 / c.rec.Responding.Probability()
		} else {
			w.estimatedAgents++
		}
	}
}

// gatheringTarget is how many agents end the gathering at once; 0 = none do.
func (c *Coordinator) gatheringTarget() int {
	if r := &c.cfg.Gather.Respond; r.On() {
		return r.TargetHellos
	}
	return c.cfg.Gather.TargetAgents
}

// ConnectedAgents is how many agents get an announcement, as far as is known: those that have been heard, or N̂ where
// agents answer by chance.
func (c *Coordinator) ConnectedAgents() int {
	r := &c.cfg.Gather.Respond
	switch n := c.rec.Responding.Agents; {
	case !r.On():
		return len(c.roster.members)
	case n > 0:
		return int(min(n, answers))
	default:
		return r.ListedAgents
	}
}

// announcedResponse is what announcements say of it.
func (c *Coordinator) announcedResponse() wire.ResponsePolicy {
	r := &c.cfg.Gather.Respond
	return wire.ResponsePolicy{AnswerThreshold: c.rec.Responding.Of, AwayMillis: uint32(r.ReturnAfter.Milliseconds()),
		AwaySpreadMillis: uint32(r.ReturnWithin.Milliseconds()), PresenceInRoundOnly: r.Presence == PresenceRound}
}
