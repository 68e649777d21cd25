package crowd

import (
	"math"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/fedmesh/fedmesh/round"
)

// size is a federation.
type size struct {
	agents, drawn, target int
	after, within         time.Duration // of those who are away
}

func (s size) config() round.Config {
	cfg := round.DefaultConfig()
	cfg.Participants, cfg.Quorum = s.drawn, s.drawn*8/10
	cfg.Gather = round.GatherConfig{MinAgents: s.drawn, WindowLength: 30 * time.Second, HelloSpread: 2 * time.Second,
		ResponseLottery: round.ResponseLotteryConfig{TargetHellos: s.target, DisconnectDuration: s.after,
			DisconnectSpread: s.within,
			Presence:         round.PresenceInRoundOnly}}
	return cfg
}

const rounds = 20

// memberMost bounds what an agent takes in bytes: its struct and its place in the queue of events, and its share of all
// else where there are many.
const memberMost, many = 300, 1_000_000

// play runs 20 rounds, in one of which the coordinator is killed, and holds them to what a round may cost.
func (s size) play(t *testing.T, twins bool) *crowd {
	cfg := s.config()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := newCrowd(t, s.agents, cfg)
	c.twins, c.crashAt = twins, rounds/2
	c.run(rounds)
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(s.agents)
	own := unsafe.Sizeof(member{}) + unsafe.Sizeof(event{})
	if s.agents >= many && each > memberMost || own > memberMost {
		t.Errorf("an agent takes %.0f bytes, %d of its own; more than %d", each, own, memberMost)
	} else {
		t.Logf("%.0f bytes an agent, %d of its own", each, own)
	}
	for r, x := range c.rounds {
		t.Logf("round %d: %+v", r+1, x)
		s.hold(t, r+1, x)
	}
	// Each has the same chance, so that a pair of rounds has L²/N agents in common, and all pairs so many within five
	// standard deviations.
	mean := float64(rounds*(rounds-1)/2) * float64(s.drawn*s.drawn) / float64(s.agents)
	if got := float64(c.again()); math.Abs(got-mean) > 5*math.Sqrt(mean)+1 {
		t.Errorf("%g times an agent has had a part in two rounds, want %.1f ± %.1f", got, mean, 5*math.Sqrt(mean)+1)
	} else {
		t.Logf("%g times an agent has had a part in two rounds, %.1f are expected", got, mean)
	}
	return c
}

// hold holds a round to its costs, which are those of the target, whatever the number of agents.
func (s size) hold(t *testing.T, r int, x tally) {
	t.Helper()
	if x.Accepted < s.drawn*8/10 {
		t.Errorf("round %d: %d updates of %d", r, x.Accepted, s.drawn)
	}
	if most := 3*s.target + 200; x.Members > most {
		t.Errorf("round %d: %d agents have said hello, want at most %d", r, x.Members, most)
	}
	if most := 2*(3*s.target+200) + 12*s.drawn; x.Verified > most || x.Signed > most {
		t.Errorf("round %d: the coordinator verifies %d signatures and makes %d, want at most %d", r, x.Verified,
			x.Signed, most)
	}
}

// TestCrowd has 10,000 agents. Each that is not drawn is held against its machine, and the same seed gives the same
// rounds.
func TestCrowd(t *testing.T) {
	s := size{agents: 10_000, drawn: 20, target: 100, after: 30 * time.Second, within: 5 * time.Minute}
	one := s.play(t, true)
	if one.compared < 10_000 {
		t.Errorf("only %d silent agents are held against their machines", one.compared)
	}
	if two := s.play(t, false); string(one.trace.Sum(nil)) != string(two.trace.Sum(nil)) {
		t.Error("the same seed gives other rounds")
	}
}
