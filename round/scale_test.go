package round_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// scaleMachine returns a coordinator's machine that waits for agents, and the ids of n agents that have not sent a
// hello message.
func scaleMachine(cfg round.Config, n int) (*round.CoordinatorMachine, []wire.AgentID) {
	plan := round.Plan{Kind: wire.KindTraining, BaseModel: blob("w0"), Exchange: spec.ExchangeParameters}
	m := round.NewCoordinator(cfg, round.JournalRecord{Run: 1, Phase: round.CoordinatorIdle, Plan: plan}, nil)
	m.Step(dawn, round.StartOrResumeRun{})
	m.Step(dawn, round.LinkUp{})
	all := make([]wire.AgentID, n)
	for i := range all {
		all[i] = wire.AgentID(fmt.Sprintf("agent-%07d", i))
	}
	return m, all
}

func scaleConfig(n int) round.Config {
	cfg := round.DefaultConfig()
	cfg.Participants, cfg.Quorum, cfg.Gather.MinAgents = n, n, n
	return cfg
}

func sayHello(m *round.CoordinatorMachine, all []wire.AgentID) {
	for _, a := range all {
		m.Step(dawn, round.HelloReceived{Agent: a, Boot: 1, Hello: wire.Hello{Samples: 100}})
	}
}

// playRound simulates a round in which all agents join, offer and send their updates. It returns the effect that starts
// the aggregation.
func playRound(m *round.CoordinatorMachine, all []wire.AgentID) (fold round.AggregateUpdates) {
	m.Step(dawn.Add(time.Minute), round.Tick{})
	r := m.JournalRecord().Round
	now := dawn.Add(2 * time.Minute)
	u := wire.Update{Kind: wire.KindTraining, BaseModelDigest: blob("w0").Hash, Samples: 100,
		PayloadManifest: wire.Manifest{Hash: name("x")}}
	for _, a := range all {
		m.Step(now, round.JoinedReceived{Agent: a, Round: r})
		m.Step(now, round.UpdateOfferReceived{UpdateOffer: round.UpdateOffer{Agent: a, Run: 1, Round: r, Update: u}})
		for _, e := range m.Step(now, round.UpdateStored{Agent: a, Round: r, Update: u}) {
			if f, ok := e.(round.AggregateUpdates); ok {
				fold = f
			}
		}
	}
	return fold
}

// allocated returns the number of bytes that the function work allocates on the heap.
func allocated(work func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	work()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// TestWorkGrowsLinearly checks that the cost per agent in a gathering and in a round does not depend on the number of
// agents.
func TestWorkGrowsLinearly(t *testing.T) {
	cost := func(n int) (hello, played float64) {
		m, all := scaleMachine(scaleConfig(n), n)
		hello = allocated(func() { sayHello(m, all) }) / float64(n)
		played = allocated(func() {
			if f := playRound(m, all); len(f.Contributions) != n {
				t.Fatalf("%d of %d updates are folded", len(f.Contributions), n)
			}
		}) / float64(n)
		return hello, played
	}
	hello, played := cost(1000)
	manyHello, manyPlayed := cost(16_000)
	if manyHello > 2*hello || manyPlayed > 2*played {
		t.Errorf("an agent of 1,000 allocates %.0f B with its hello and %.0f B in a round, one of 16,000 %.0f B and "+
			"%.0f B", hello, played, manyHello, manyPlayed)
	}
}

func scales(b *testing.B, run func(b *testing.B, n int)) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { run(b, n) })
	}
}

func perAgent(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/agent")
}

// BenchmarkHellos measures the time for processing the hello messages of n agents, and the memory per agent.
func BenchmarkHellos(b *testing.B) {
	scales(b, func(b *testing.B, n int) {
		var bytes float64
		for b.Loop() {
			b.StopTimer()
			m, all := scaleMachine(scaleConfig(2*n), n)
			before := inUse()
			b.StartTimer()
			sayHello(m, all)
			b.StopTimer()
			bytes = float64(inUse()-before) / float64(n)
			runtime.KeepAlive(m)
			runtime.KeepAlive(all)
			b.StartTimer()
		}
		perAgent(b, n)
		b.ReportMetric(bytes, "B/member")
	})
}

func inUse() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// BenchmarkPresence measures the time for processing the departure of all agents, one by one, and their return.
func BenchmarkPresence(b *testing.B) {
	scales(b, func(b *testing.B, n int) {
		m, all := scaleMachine(scaleConfig(2*n), n)
		sayHello(m, all)
		for b.Loop() {
			for _, a := range all {
				m.Step(dawn, round.PresenceReceived{Agent: a, State: wire.PresenceLost})
			}
			sayHello(m, all)
		}
		perAgent(b, n)
	})
}

// BenchmarkRound measures a round in which all agents are drawn, join, and send an update.
func BenchmarkRound(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				m, all := scaleMachine(scaleConfig(n), n)
				sayHello(m, all)
				b.StartTimer()
				playRound(m, all)
			}
			perAgent(b, n)
		})
	}
}

// BenchmarkDraw measures the time for opening a round with ten participants among n agents.
func BenchmarkDraw(b *testing.B) {
	scales(b, func(b *testing.B, n int) {
		cfg := scaleConfig(n)
		cfg.Participants, cfg.Quorum = 10, 10
		for b.Loop() {
			b.StopTimer()
			m, all := scaleMachine(cfg, n)
			sayHello(m, all)
			b.StartTimer()
			m.Step(dawn.Add(time.Minute), round.Tick{})
		}
		perAgent(b, n)
	})
}

// BenchmarkMeshed measures the time for opening a round in which each agent mixes with eight neighbours on a ring.
func BenchmarkMeshed(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cfg := scaleConfig(n)
			cfg.Algorithm, cfg.Sampling, cfg.Participants, cfg.Quorum = spec.FedDec, spec.SamplingWithReplacement, 10, 1
			for b.Loop() {
				b.StopTimer()
				m, all := scaleMachine(cfg, n)
				sayHello(m, all)
				m.Step(dawn.Add(time.Minute), round.Tick{})
				meshed := round.EdgesReady{Round: 1, Edges: ring(all, 4)}
				b.StartTimer()
				if effects := m.Step(dawn.Add(time.Minute), meshed); len(effects) < n {
					b.Fatalf("%d effects", len(effects))
				}
			}
			perAgent(b, n)
		})
	}
}

// ring returns the edges that connect each agent with the next k agents in a ring, sorted by (A, B).
func ring(all []wire.AgentID, k int) (edges []round.MixingEdge) {
	for i, a := range all {
		for j := i + 1; j <= i+k && j < len(all); j++ {
			edges = append(edges, round.MixingEdge{A: a, B: all[j], MixingWeight: 0.1})
		}
	}
	return edges
}
