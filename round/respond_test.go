package round_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// crowd simulates a coordinator and many agents by their state machines, without a network. Each round is aggregated as
// soon as all of its updates have arrived.
type crowd struct {
	t      *testing.T
	now    time.Time
	lead   *round.CoordinatorMachine
	agents []*agentround.Machine
	// number of agents that do not support the response lottery and always answer; they are the first agents in the
	// list
	old    int
	plan   round.Plan
	heard  map[int]int // number of hello messages that each agent has sent in this round
	record round.JournalRecord
	asked  []uint32 // answer probability in each announcement, in units of 2⁻³²
}

func newCrowd(t *testing.T, cfg round.Config, n, old int) *crowd {
	c := &crowd{t: t, now: dawn, old: old, plan: round.Plan{Kind: wire.KindTraining,
		Task: blob("task"), BaseModel: blob("w0"), UpdateBytes: 40}}
	for i := range n {
		a := agentround.New(wire.AnnouncementPosition{}, wire.Digest{}, nil, rand.New(rand.NewPCG(1, uint64(i))))
		a.Step(c.now, agentround.LinkUp{})
		c.agents = append(c.agents, a)
	}
	c.lead = round.NewCoordinator(cfg, round.JournalRecord{Run: 7, Phase: round.CoordinatorIdle, Plan: c.plan}, nil)
	c.step(round.LinkUp{})
	c.step(round.StartOrResumeRun{})
	return c
}

func (c *crowd) step(ev round.Event) {
	for _, e := range c.lead.Step(c.now, ev) {
		switch e := e.(type) {
		case round.SaveJournalRecord:
			c.record = e.Record
		case round.PublishAnnouncement:
			c.step(round.AnnouncementSent{Round: e.Round, Attempt: e.Announcement.Attempt, Phase: e.Announcement.Phase})
			if e.Announcement.Phase == wire.PhaseGathering {
				c.asked = append(c.asked, e.Announcement.ResponsePolicy.AnswerProbability)
				c.announce(e)
			}
		case round.AggregateUpdates:
			c.plan.BaseModelVersion++
			c.plan.BaseModel.Hash = name(fmt.Sprint("w", c.plan.BaseModelVersion))
			c.step(round.AggregationEnded{Round: e.Round, NextPlan: c.plan})
		}
	}
}

// announce delivers an announcement to each agent. The agents that answer send their hello message at the end of the
// spread.
func (c *crowd) announce(e round.PublishAnnouncement) {
	c.heard = map[int]int{}
	order := wire.AnnouncementPosition{Root: 1, Epoch: 1, Run: 7, Round: e.Round, Attempt: e.Announcement.Attempt,
		Phase: e.Announcement.Phase}
	for i, a := range c.agents {
		ann := e.Announcement
		if i < c.old {
			ann.ResponsePolicy = wire.AgentResponsePolicy{}
		}
		a.Step(c.now, agentround.AnnouncementReceived{Position: order, EnvelopeDigest: name(order.String()[:32]),
			Announcement: ann})
		a.Step(c.now, agentround.TaskChecked{TaskDigest: ann.Task.Hash, RowCount: 100})
	}
}

// hellos delivers the hello messages that agents send within the period spread.
func (c *crowd) hellos(spread time.Duration) {
	c.now = c.now.Add(spread)
	for i, a := range c.agents {
		for _, e := range a.Step(c.now, agentround.Tick{}) {
			if h, is := e.(agentround.SendHello); is {
				c.heard[i]++
				c.step(round.HelloReceived{Agent: wire.AgentID(fmt.Sprintf("a%04d", i)), Boot: 1,
					Hello: wire.Hello{Samples: h.RowCount, AnswerProbability: h.LotteryThreshold}})
			}
		}
	}
}

// close ends the round after all participants have sent their updates.
func (c *crowd) close() {
	for _, p := range c.lead.JournalRecord().Participants {
		c.step(round.JoinedReceived{Agent: p.Agent, Round: c.record.Round})
		c.step(round.UpdateStored{Agent: p.Agent, Round: c.record.Round, Norm: 1,
			Update: wire.Update{Kind: wire.KindTraining,
				PayloadManifest: wire.Manifest{Hash: name(string(p.Agent))}}})
	}
}

func respondConfig(target int) round.Config {
	cfg := round.DefaultConfig()
	cfg.Participants, cfg.Quorum = 20, 10
	cfg.Gather = round.GatherConfig{MinAgents: 20, WindowLength: 30 * time.Second, HelloSpread: 5 * time.Second,
		ResponseLottery: round.ResponseLotteryConfig{TargetHellos: target, ListedAgents: 4000,
			Presence: round.PresenceOfAllAgents}}
	return cfg
}

// TestRespond runs 30 rounds with 4,000 agents, 40 of which always answer. It checks that the number of answers is 1.3
// times the target within five standard deviations, that the coordinator estimates the number of agents well, and that
// each agent is drawn equally often.
func TestRespond(t *testing.T) {
	const n, old, target, rounds = 4000, 40, 200, 30
	cfg := respondConfig(target)
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	c := newCrowd(t, cfg, n, old)
	answered := make([]int, n)
	for r := 1; r <= rounds; r++ {
		c.hellos(cfg.Gather.HelloSpread)
		if got := int(c.record.Round); got != r {
			t.Fatalf("round %d, want %d", got, r)
		}
		for i, k := range c.heard {
			if answered[i]++; k != 1 {
				t.Fatalf("round %d: agent %d said hello %d times", r, i, k)
			}
		}
		p := float64(c.asked[len(c.asked)-1]) / (1 << 32)
		mean, deviation := p*(n-old)+old, math.Sqrt(n*p)
		if got := float64(len(c.heard)); math.Abs(got-mean) > 5*deviation {
			t.Errorf("round %d: %g hellos, want %g ± %g", r, got, mean, 5*deviation)
		}
		if of := 1.3 * target / p; math.Abs(of-n) > 5*deviation/p {
			t.Errorf("round %d: N is estimated as %g, is %d", r, of, n)
		}
		if k := c.record.EligibleAgents; k < cfg.Gather.ResponseLottery.TargetHellos {
			t.Errorf("round %d is drawn from %d agents, fewer than %d", r, k, target)
		}
		c.close()
	}
	share, most := float64(rounds*1.3*target)/n, 0
	for i, k := range answered {
		if i < old && k != rounds {
			t.Errorf("agent %d always answers, and has %d times of %d", i, k, rounds)
		} else if i >= old {
			most = max(most, k)
		}
	}
	if limit := share + 6*math.Sqrt(share); float64(most) > limit {
		t.Errorf("an agent has answered %d times, more than %.1f", most, limit)
	}
}

// TestRespondFallsShort checks a federation in which only a thousandth of the listed agents is present: the answer
// probability must double until enough agents answer. In the next round, the coordinator must ask only as many agents
// as it needs.
func TestRespondFallsShort(t *testing.T) {
	cfg := respondConfig(200)
	cfg.Gather.ResponseLottery.ListedAgents = 4000 * 256
	c := newCrowd(t, cfg, 4000, 0)
	for len(c.asked) < 20 && c.record.Phase == round.CoordinatorGathering {
		c.hellos(cfg.Gather.HelloSpread)
		if c.record.Phase == round.CoordinatorGathering {
			c.now = c.now.Add(cfg.Gather.WindowLength)
			c.step(round.Tick{})
		}
	}
	for i := 1; i < len(c.asked); i++ {
		if c.asked[i] != 2*c.asked[i-1] {
			t.Errorf("attempt %d asks for %d/2³², want twice %d", i+1, c.asked[i], c.asked[i-1])
		}
	}
	if k := c.record.EligibleAgents; k < cfg.Gather.MinAgents || len(c.asked) < 4 {
		t.Fatalf("%d agents after %d attempts", k, len(c.asked))
	}
	attempts := len(c.asked)
	for r := 2; r <= 8; r++ {
		c.close()
		c.hellos(cfg.Gather.HelloSpread)
		if c.record.Phase == round.CoordinatorGathering {
			c.now = c.now.Add(cfg.Gather.WindowLength)
			c.step(round.Tick{})
		}
	}
	if n := c.record.ResponseLottery.EstimatedAgents; math.Abs(n-4000) > 1000 {
		t.Errorf("after %d attempts and 7 rounds N is estimated as %g, is 4000", attempts, n)
	}
}

// TestRespondNeverEnds checks that the answer probability grows to at most 1, the value at which all agents answer.
func TestRespondNeverEnds(t *testing.T) {
	cfg := respondConfig(200)
	c := newCrowd(t, cfg, 5, 0)
	for range 10 {
		c.hellos(cfg.Gather.HelloSpread)
		c.now = c.now.Add(cfg.Gather.WindowLength)
		c.step(round.Tick{})
	}
	if of := c.asked[len(c.asked)-1]; of != 0 {
		t.Errorf("after 10 attempts without enough agents %d/2³² are asked, want all", of)
	}
	if n := c.record.ResponseLottery.EstimatedAgents; math.Abs(n-5) > 1 {
		t.Errorf("N is estimated as %g, is 5", n)
	}
}
