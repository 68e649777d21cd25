package crowd

import (
	"math"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/fedmesh/fedmesh/round"
)

type size struct {
	agents, drawn, target int
	// minimum duration of a disconnection (after), and maximum random addition to it (within)
	after, within time.Duration
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

// memberMost is the maximum memory per agent in bytes, for its struct and its queued event. With at least `many`
// agents, the limit also covers the agent's share of all other memory.
const memberMost, many = 300, 1_000_000

// play simulates 20 rounds, kills the coordinator in one of them, and checks the numbers of messages and signatures in
// each round.
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
	// Two rounds have L²/N common participants on average (L of N agents per round). The sum over all pairs of rounds
	// must be within five standard deviations of its mean.
	mean := float64(rounds*(rounds-1)/2) * float64(s.drawn*s.drawn) / float64(s.agents)
	if got := float64(c.again()); math.Abs(got-mean) > 5*math.Sqrt(mean)+1 {
		t.Errorf("%g times an agent has had a part in two rounds, want %.1f ± %.1f", got, mean, 5*math.Sqrt(mean)+1)
	} else {
		t.Logf("%g times an agent has had a part in two rounds, %.1f are expected", got, mean)
	}
	return c
}

// hold checks that the cost of a round depends only on the target number of agents and not on the total number.
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

// TestCrowd simulates 10,000 agents. It compares each passive agent with the state machine and checks that equal seeds
// give equal rounds.
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
