package round_test

import (
	"fmt"
	"testing"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// opened returns the announcement of a round for which n agents are drawn, with updates of the given size in bytes.
func opened(t *testing.T, cfg round.Config, n int, bytes uint32) round.PublishAnnouncement {
	t.Helper()
	m := round.NewCoordinator(cfg, round.JournalRecord{Run: 1, Phase: round.CoordinatorIdle, Plan: round.Plan{
		Kind: wire.KindTraining, BaseModel: blob("w0"), Exchange: spec.ExchangeParameters, UpdateBytes: bytes}}, nil)
	m.Step(dawn, round.StartOrResumeRun{})
	m.Step(dawn, round.LinkUp{})
	for i := range n {
		m.Step(dawn, round.HelloReceived{Agent: agentNumber(i), Boot: 1, Hello: wire.Hello{Samples: uint64(100 + i)}})
	}
	for _, e := range m.Step(dawn.Add(cfg.Gather.WindowLength), round.Tick{}) {
		if a, ok := e.(round.PublishAnnouncement); ok {
			return a
		}
	}
	t.Fatal("no announcement")
	return round.PublishAnnouncement{}
}

// TestWhoIsNamed checks that the announcement lists the drawn agents if the list needs at most 4 KiB. If the list is
// longer, the coordinator must invite the agents individually.
func TestWhoIsNamed(t *testing.T) {
	for _, c := range []struct {
		agents  int
		weights spec.AgentWeightRule
		named   bool
	}{
		{1, spec.WeightsEqual, true}, {510, spec.WeightsEqual, true}, {511, spec.WeightsEqual, false},
		{255, spec.WeightsSamples, true}, {256, spec.WeightsSamples, false},
	} {
		cfg := scaleConfig(c.agents)
		cfg.AgentWeightRule = c.weights
		a := opened(t, cfg, c.agents, 4000)
		if named := len(a.SelectedAgents) == c.agents; named != c.named || !named && a.SelectedAgents != nil {
			t.Errorf("%d agents, weights %s: %d are named", c.agents, c.weights, len(a.SelectedAgents))
		}
	}
}

// TestFirstCredit checks that all agents together may send at most 256 messages and 4 MiB before the coordinator
// requests chunks.
func TestFirstCredit(t *testing.T) {
	for _, c := range []struct {
		agents int
		bytes  uint32
		want   uint32
	}{
		{1, wire.MaxInlineUpdate, 0}, {1, wire.MaxInlineUpdate + 1, 4}, {1, 1 << 20, 4}, {17, 1 << 20, 4},
		{18, 1 << 20, 3}, {34, 1 << 20, 2}, {68, 1 << 20, 1}, {69, 1 << 20, 0},
		{64, 10_000, 4}, {65, 10_000, 3}, {128, 10_000, 2}, {256, 10_000, 1}, {257, 10_000, 0},
	} {
		t.Run(fmt.Sprint(c.agents, " of ", c.bytes), func(t *testing.T) {
			if got := opened(t, scaleConfig(c.agents), c.agents,
				c.bytes).Announcement.InitialCreditChunks; got != c.want {
				t.Errorf("%d chunks, want %d", got, c.want)
			}
		})
	}
}
