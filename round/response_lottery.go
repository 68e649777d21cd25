package round

import (
	"math"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// PresencePolicy selects the agents that publish their presence.
type PresencePolicy string

// The presence policies.
const (
	PresenceOfAllAgents PresencePolicy = "all"
	PresenceInRoundOnly PresencePolicy = "round" // only agents that participate in a round
)

// ResponseLotteryConfig limits the number of agents that send a hello message for a round. A lottery selects these
// agents; other agents may disconnect from the broker for some time.
type ResponseLotteryConfig struct {
	// TargetHellos is the number of hello messages that a round waits for; 0 means that all agents send a hello
	// message.
	TargetHellos int `yaml:"target"`
	// DisconnectDuration is the minimum time for which an agent that does not participate may disconnect. The agent
	// adds a random part of DisconnectSpread. If both durations are 0, agents do not disconnect.
	DisconnectDuration time.Duration  `yaml:"return_after"`
	DisconnectSpread   time.Duration  `yaml:"return_within"`
	Presence           PresencePolicy `yaml:"presence"`
	// ListedAgents is the assumed number of agents before the first hello message; 0 means unknown.
	ListedAgents int `yaml:"-"`
}

// IsEnabled reports whether only a random part of the agents sends a hello.
func (r *ResponseLotteryConfig) IsEnabled() bool { return r.TargetHellos > 0 }

// certainAnswerThreshold is the answer threshold that corresponds to an answer probability of 1. A threshold is a
// probability multiplied by 2³².
const certainAnswerThreshold = 1 << 32

// helloSurplusFactor is the ratio of requested to needed hello messages. If 1,300 hello messages are expected, at least
// 1,000 arrive almost certainly.
const helloSurplusFactor = 1.3

// validateResponse reports options that require the hello message of every agent and are therefore incompatible with
// the response lottery.
func (c *Config) validateResponse(check *spec.ProblemList) {
	r := &c.Gather.ResponseLottery
	check.Require(r.TargetHellos >= 0, "gather.respond.target", "must not be negative (0 = every agent sends a "+
		"hello), but is %d",
		r.TargetHellos)
	for key, d := range map[string]time.Duration{"return_after": r.DisconnectDuration,
		"return_within": r.DisconnectSpread} {
		check.Require(d >= 0 && d <= maxConfiguredDuration, "gather.respond."+key,
			"must be between 0 and %s, but is %s",
			maxConfiguredDuration, d)
		check.Require(d == 0 || r.IsEnabled(), "gather.respond."+key,
			"is %s, but gather.respond.target is 0: set gather.respond.target or remove this key", d)
	}
	check.Require(r.Presence == PresenceOfAllAgents || r.Presence == PresenceInRoundOnly || r.Presence == "" &&
		!r.IsEnabled(),
		"gather.respond.presence", "must be \"all\" or \"round\", but is %q", r.Presence)
	check.Require(r.Presence != PresenceInRoundOnly || r.IsEnabled(), "gather.respond.presence",
		"the value \"round\" requires a gather.respond.target above 0: set gather.respond.target, or use the value "+
			"\"all\"")
	if !r.IsEnabled() {
		return
	}
	check.Require(r.TargetHellos >= c.Gather.MinAgents && r.TargetHellos >= c.Participants+c.ExtraParticipants,
		"gather.respond.target",
		"must be at least gather.minimum (%d) and at least the sum of participants and over_select (%d), but is %d",
		c.Gather.MinAgents,
		c.Participants+c.ExtraParticipants, r.TargetHellos)
	check.Require(c.Gather.TargetAgents == 0, "gather.target",
		"cannot be combined with gather.respond.target: remove one of them")
	check.Require(c.Algorithm == spec.FedAvg, "gather.respond.target",
		"requires the algorithm fedavg, because every agent must send a hello in rounds with mixing")
	check.Require(c.Sampling != spec.SamplingImportance, "gather.respond.target",
		"cannot be combined with sampling importance, which requires the last update of each agent")
	check.Require(!c.Schedule.NewRows.IsEnabled(), "gather.respond.target",
		"cannot be combined with schedule.new_rows, which requires the row counts of all agents")
	check.Require(!c.Rollout.IsEnabled(), "gather.respond.target",
		"cannot be combined with rollout, which requires reports from all agents")
}

// ResponseLottery is the state of the lottery that selects the agents to send a hello message.
type ResponseLottery struct {
	// announced answer probability p, multiplied by 2³²; 0 means that all agents answer
	AnswerThreshold uint32 `json:"Of,omitempty"`
	// estimated number N̂ of agents that would answer if all were asked; 0 means unknown
	EstimatedAgents float64 `json:"Agents,omitempty"`
}

// AnswerProbability returns the probability p that an agent answers.
func (r *ResponseLottery) AnswerProbability() float64 {
	if r.AnswerThreshold == 0 {
		return 1
	}
	return float64(r.AnswerThreshold) / certainAnswerThreshold
}

// helloWindow counts the hello messages since the coordinator last asked all agents for one.
type helloWindow struct {
	number   uint32
	openedAt time.Time
	// estimated number of agents: sum of 1/p over the received hello messages, where p is the sender's answer
	// probability
	estimatedAgents float64
}

// startResponseLottery sets the answer probability for a new round and clears the roster of known agents, because other
// agents may answer in the new round.
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

// doubleAnswerProbability doubles the answer probability after too few agents have answered.
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

// estimateAgentCount updates the estimated number of agents from the hello messages in the window, by the
// Horvitz–Thompson estimator: the sum of 1/p over the messages, where p is the answer probability, divided by the
// elapsed share of the period in which agents answer. It averages the result with the previous estimate.
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

// countHello counts the first hello message of a fit agent in the window. It adds 1/p to the estimated number of agents
// if the agent answered the current lottery with probability p, and 1 otherwise.
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

// gatheringTarget returns the number of present agents at which gathering ends early; 0 means that gathering does not
// end early.
func (c *CoordinatorMachine) gatheringTarget() int {
	if r := &c.cfg.Gather.ResponseLottery; r.IsEnabled() {
		return r.TargetHellos
	}
	return c.cfg.Gather.TargetAgents
}

// ConnectedAgentCount returns the estimated number of agents that receive an announcement: the known agents or, with
// the response lottery, the estimated number of all agents.
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

func (c *CoordinatorMachine) announcedResponsePolicy() wire.AgentResponsePolicy {
	r := &c.cfg.Gather.ResponseLottery
	return wire.AgentResponsePolicy{AnswerProbability: c.record.ResponseLottery.AnswerThreshold,
		DisconnectMillis:    uint32(r.DisconnectDuration.Milliseconds()),
		AbsenceSpreadMillis: uint32(r.DisconnectSpread.Milliseconds()),
		PresenceInRoundOnly: r.Presence == PresenceInRoundOnly}
}
