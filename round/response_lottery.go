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
	PresenceOfAllAgents PresencePolicy = "all"
	PresenceInRoundOnly PresencePolicy = "round" // those with a part in a round
)

// ResponseLotteryConfig has a round of many agents hear some of them, and the others leave the broker for a while.
type ResponseLotteryConfig struct {
	// TargetHellos is how many hellos a round waits for; 0 = all agents say hello.
	TargetHellos int `yaml:"target"`
	// An agent without a part in the round may leave, and comes back after DisconnectDuration and a random part of
	// DisconnectSpread; both 0 = nobody leaves.
	DisconnectDuration time.Duration  `yaml:"return_after"`
	DisconnectSpread   time.Duration  `yaml:"return_within"`
	Presence           PresencePolicy `yaml:"presence"`
	// ListedAgents is how many agents there are before any has been heard; 0 = not known.
	ListedAgents int `yaml:"-"`
}

// IsEnabled reports whether agents answer by chance.
func (r *ResponseLotteryConfig) IsEnabled() bool { return r.TargetHellos > 0 }

// certainAnswerThreshold is 2³² times the probability of an agent's answer that is certain.
const certainAnswerThreshold = 1 << 32

// helloSurplusFactor is how many hellos are asked for, in targets: of 1,300 that are expected 1,000 come, for certain.
const helloSurplusFactor = 1.3

// validateResponse finds what does not go with rounds that hear a sample of the agents: what counts on hearing each of
// them.
func (c *Config) validateResponse(check *spec.ProblemList) {
	r := &c.Gather.ResponseLottery
	check.Require(r.TargetHellos >= 0, "gather.respond.target", "must not be negative, is %d (0 = all say hello)",
		r.TargetHellos)
	for key, d := range map[string]time.Duration{"return_after": r.DisconnectDuration,
		"return_within": r.DisconnectSpread} {
		check.Require(d >= 0 && d <= maxConfiguredDuration, "gather.respond."+key, "must be 0 to %s, is %s",
			maxConfiguredDuration, d)
		check.Require(d == 0 || r.IsEnabled(), "gather.respond."+key,
			"is %s, but gather.respond.target is 0: an agent leaves only where not all are heard", d)
	}
	check.Require(r.Presence == PresenceOfAllAgents || r.Presence == PresenceInRoundOnly || r.Presence == "" &&
		!r.IsEnabled(),
		"gather.respond.presence", "must be all or round, is %q", r.Presence)
	check.Require(r.Presence != PresenceInRoundOnly || r.IsEnabled(), "gather.respond.presence",
		"is round, but gather.respond.target is 0: all agents have a part in rounds")
	if !r.IsEnabled() {
		return
	}
	check.Require(r.TargetHellos >= c.Gather.MinAgents && r.TargetHellos >= c.Participants+c.ExtraParticipants,
		"gather.respond.target",
		"must be at least gather.minimum (%d), and participants and over_select (%d), is %d", c.Gather.MinAgents,
		c.Participants+c.ExtraParticipants, r.TargetHellos)
	check.Require(c.Gather.TargetAgents == 0, "gather.target",
		"does not go with gather.respond.target, which it would replace")
	check.Require(c.Algorithm == spec.FedAvg, "gather.respond.target",
		"goes with algorithm fedavg only: agents that mix are all heard")
	check.Require(c.Sampling != spec.SamplingImportance, "gather.respond.target",
		"does not go with sampling importance, which needs the last update of each agent")
	check.Require(!c.Schedule.NewRows.IsEnabled(), "gather.respond.target",
		"does not go with schedule.new_rows, which counts the rows of all agents")
	check.Require(!c.Rollout.IsEnabled(), "gather.respond.target",
		"does not go with rollout, which needs word of all agents")
}

// ResponseLottery is what the coordinator knows of agents that answer by chance.
type ResponseLottery struct {
	AnswerThreshold uint32  `json:"Of,omitempty"`     // p·2³², as announced; 0 = all answer
	EstimatedAgents float64 `json:"Agents,omitempty"` // N̂, those that would answer if all were asked; 0 = not known
}

// AnswerProbability is p.
func (r *ResponseLottery) AnswerProbability() float64 {
	if r.AnswerThreshold == 0 {
		return 1
	}
	return float64(r.AnswerThreshold) / certainAnswerThreshold
}

// helloWindow is the hellos since all were asked the last time.
type helloWindow struct {
	number          uint32
	openedAt        time.Time // the announcement is out; zero = it is not, or the link was lost since
	estimatedAgents float64   // Σ 1/p of those that were heard
}

// startResponseLottery makes p for a new round, and forgets who was heard for the one before: others are heard now.
func (c *CoordinatorMachine) startResponseLottery(now time.Time) {
	r := &c.cfg.Gather.ResponseLottery
	if !r.IsEnabled() {
		c.record.ResponseLottery = ResponseLottery{}
		return
	}
	c.estimateAgentCount(now)
	n := c.record.ResponseLottery.EstimatedAgents
	if n == 0 {
		n = float64(r.ListedAgents)
	}
	c.record.ResponseLottery.AnswerThreshold = 0
	if wanted := helloSurplusFactor * float64(r.TargetHellos); wanted < n {
		c.record.ResponseLottery.AnswerThreshold = uint32(max(1, math.Round(certainAnswerThreshold*wanted/n)))
	}
	c.roster.forgetMembers()
}

// doubleAnswerProbability doubles p: too few have answered.
func (c *CoordinatorMachine) doubleAnswerProbability(now time.Time) {
	if !c.cfg.Gather.ResponseLottery.IsEnabled() {
		return
	}
	c.estimateAgentCount(now)
	if of := &c.record.ResponseLottery.AnswerThreshold; *of >= certainAnswerThreshold/2 {
		*of = 0
	} else {
		*of *= 2
	}
}

// estimateAgentCount takes N̂ from the window: Σ 1/p over the agents heard (Horvitz and Thompson), divided by the share
// of the spread that has gone by; half of the estimate before stays, if there is one.
func (c *CoordinatorMachine) estimateAgentCount(now time.Time) {
	w, n := &c.helloWindow, &c.record.ResponseLottery.EstimatedAgents
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
func (c *CoordinatorMachine) countHello(m *rosterMember, of uint32) {
	if w := &c.helloWindow; m.helloWindowNumber != w.number && m.isPresentAndFit() {
		m.helloWindowNumber = w.number
		if of > 0 && of == c.record.ResponseLottery.AnswerThreshold {
			w.estimatedAgents += 1 / c.record.ResponseLottery.AnswerProbability()
		} else {
			w.estimatedAgents++
		}
	}
}

// gatheringTarget is how many agents end the gathering at once; 0 = none do.
func (c *CoordinatorMachine) gatheringTarget() int {
	if r := &c.cfg.Gather.ResponseLottery; r.IsEnabled() {
		return r.TargetHellos
	}
	return c.cfg.Gather.TargetAgents
}

// ConnectedAgentCount is how many agents get an announcement, as far as is known: those that have been heard, or N̂
// where agents answer by chance.
func (c *CoordinatorMachine) ConnectedAgentCount() int {
	r := &c.cfg.Gather.ResponseLottery
	switch n := c.record.ResponseLottery.EstimatedAgents; {
	case !r.IsEnabled():
		return len(c.roster.memberByAgent)
	case n > 0:
		return int(min(n, certainAnswerThreshold))
	default:
		return r.ListedAgents
	}
}

// announcedResponsePolicy is what announcements say of it.
func (c *CoordinatorMachine) announcedResponsePolicy() wire.AgentResponsePolicy {
	r := &c.cfg.Gather.ResponseLottery
	return wire.AgentResponsePolicy{AnswerProbability: c.record.ResponseLottery.AnswerThreshold,
		DisconnectMillis:    uint32(r.DisconnectDuration.Milliseconds()),
		AbsenceSpreadMillis: uint32(r.DisconnectSpread.Milliseconds()),
		PresenceInRoundOnly: r.Presence == PresenceInRoundOnly}
}
