package round

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// seenOnRing returns the edge measurements of six agents that are connected in a ring. The function change may modify
// each measurement.
func seenOnRing(change func(by, of int, s *wire.MixingEdgeMeasurement)) *edgeReportCollector {
	w := &edgeReportCollector{mixingWeightByEdge: map[edgeKey]float64{},
		reportByEdge: map[edgeKey]wire.MixingEdgeMeasurement{}}
	for i := range 6 {
		for _, j := range []int{(i + 1) % 6, (i + 5) % 6} {
			a, b := wire.AgentID(fmt.Sprint("a", i)), wire.AgentID(fmt.Sprint("a", j))
			s := wire.MixingEdgeMeasurement{NeighborID: b, AppliedFlows: 10, MeanParameterDistance: 1 + float64(i)/10,
				MixingResponseRatio: 0.2}
			change(i, j, &s)
			w.mixingWeightByEdge[edgeKeyOf(a, b)], w.reportByEdge[edgeKey{a, b}] = 0.2, s
		}
	}
	return w
}

// TestJudgedEdges checks that an edge is excluded if its agents' parameters are far apart, or if one of its agents does
// not respond to mixing according to both of that agent's neighbours. A single false report may exclude only edges of
// the agent that sent the report.
func TestJudgedEdges(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(by, of int, s *wire.MixingEdgeMeasurement)
		want   map[edgeKey]wire.EdgeEndReason
	}{
		{"all well", func(int, int, *wire.MixingEdgeMeasurement) {}, nil},
		{"an agent says what is far off", func(_, of int, s *wire.MixingEdgeMeasurement) {
			if of == 2 {
				s.MeanParameterDistance = 5e30
			}
		}, map[edgeKey]wire.EdgeEndReason{{"a1", "a2"}: wire.EdgeEndTooDistant, {"a2", "a3"}: wire.EdgeEndTooDistant}},
		{"an agent whose data differ", func(_, of int, s *wire.MixingEdgeMeasurement) {
			if of == 2 {
				s.MeanParameterDistance = 20
			}
		}, nil},
		{"an agent says always the same", func(_, of int, s *wire.MixingEdgeMeasurement) {
			if of == 2 {
				s.MixingResponseRatio = 0.006
			}
		}, map[edgeKey]wire.EdgeEndReason{{"a1", "a2"}: wire.EdgeEndNotMixing, {"a2", "a3"}: wire.EdgeEndNotMixing}},
		{"an agent that moves away", func(_, of int, s *wire.MixingEdgeMeasurement) {
			if of == 2 {
				s.MixingResponseRatio = -0.1
			}
		}, nil},
		{"one neighbour alone says so", func(by, of int, s *wire.MixingEdgeMeasurement) {
			if by == 1 && of == 2 {
				s.MixingResponseRatio = 0.006
			}
		}, nil},
		{"all are at rest", func(_, of int,
			s *wire.MixingEdgeMeasurement) {
			s.MixingResponseRatio = 0.01 * float64(of%2)
		}, nil},
	} {
		got := map[edgeKey]wire.EdgeEndReason{}
		w := seenOnRing(tt.change)
		if w.judgeEdgeDistances(got); len(got) == 0 {
			w.judgeStationaryAgents(got)
		}
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestAwaitsReports checks that a round that could close waits for the edge reports of present agents, for a tenth of
// its duration but at most a second.
func TestAwaitsReports(t *testing.T) {
	began := time.Unix(0, 0)
	bounded := func() *CoordinatorMachine {
		c := &CoordinatorMachine{announcement: announcementState{roundAnnouncedAt: began}}
		c.record.MixingBlockRound, c.record.Edges = 3, []MixingEdge{{A: "a1", B: "a2", MixingWeight: 0.2,
			ClipBound: 1}, {A: "a2", B: "a3", MixingWeight: 0.2}}
		c.roster.memberByAgent = map[wire.AgentID]*rosterMember{"a1": {isPresent: true}, "a2": {isPresent: true}}
		c.startCollectingEdgeReports()
		return c
	}
	told := func(c *CoordinatorMachine, block wire.RoundID, agents ...wire.AgentID) *CoordinatorMachine {
		for _, a := range agents {
			c.handleEdgeReport(a, &wire.MixingEdgeMeasurements{MixingBlockRound: block})
		}
		return c
	}
	without := bounded()
	without.record.Edges[0].ClipBound = 0
	without.startCollectingEdgeReports()
	endless := bounded()
	endless.record.Plan.HasEndlessBlocks = true
	gone := told(bounded(), 3, "a1")
	gone.roster.memberByAgent["a2"].isPresent = false
	for _, tt := range []struct {
		name string
		c    *CoordinatorMachine
		took time.Duration
		want time.Duration
	}{
		{"nobody has told", bounded(), 4 * time.Second, 400 * time.Millisecond},
		{"soon", bounded(), 0, 100 * time.Millisecond},
		{"late", bounded(), time.Hour, time.Second},
		{"one has told", told(bounded(), 3, "a1"), 4 * time.Second, 400 * time.Millisecond},
		{"of another block", told(bounded(), 2, "a1", "a2"), 4 * time.Second, 400 * time.Millisecond},
		{"all have told", told(bounded(), 3, "a1", "a2"), 4 * time.Second, 0},
		{"the other has left", gone, 4 * time.Second, 0},
		{"without a bound", without, 4 * time.Second, 0},
		{"a block without an end", endless, 4 * time.Second, 0},
	} {
		could := began.Add(tt.took)
		if got := tt.c.awaitsEdgeReports(could); got != (tt.want > 0) {
			t.Errorf("%s: waits %v", tt.name, got)
			continue
		}
		if at, ok := tt.c.Deadline(); tt.want > 0 && (!ok || at.Sub(could) != tt.want || tt.c.awaitsEdgeReports(at)) {
			t.Errorf("%s: waits until %v after it could close, want %v, and no longer", tt.name, at.Sub(could), tt.want)
		}
	}
}

// TestAnotherIsDrawnMeanwhile checks that a round that waits for edge reports stays open until its deadline if another
// agent is drawn during the wait.
func TestAnotherIsDrawnMeanwhile(t *testing.T) {
	began := time.Unix(0, 0)
	c := &CoordinatorMachine{announcement: announcementState{roundAnnouncedAt: began},
		phaseDeadline: began.Add(time.Minute)}
	c.cfg.Participants, c.cfg.Quorum, c.cfg.RoundTimeout = 3, 1, time.Minute
	c.record.Phase, c.record.Plan.Kind, c.record.MixingBlockRound = CoordinatorCollecting, wire.KindTraining, 3
	c.record.Edges = []MixingEdge{{A: "a1", B: "a2", MixingWeight: 0.2, ClipBound: 1}}
	c.roster.memberByAgent = map[wire.AgentID]*rosterMember{"a1": {isPresent: true}}
	c.startCollectingEdgeReports()
	c.progress.drawCountByState[stateAccepted] = 2
	now := began.Add(time.Second)
	if c.closeRoundIfReady(now); c.mixing.edgeReportsDeadline.IsZero() || !c.isInPhase(CoordinatorCollecting) {
		t.Fatalf("it waits until %v, in %v", c.mixing.edgeReportsDeadline, c.record.Phase)
	}
	c.progress.drawCountByState[stateInvited] = 1
	c.closeRoundIfReady(now)
	if at, ok := c.Deadline(); !ok || !at.Equal(began.Add(time.Minute)) {
		t.Errorf("with another to wait for, it wakes at %v (%v)", at, ok)
	}
}

// TestDeadlineWhileReportsAreAwaited checks that deadlines and invitations that become due while the round waits for
// edge reports are processed once.
func TestDeadlineWhileReportsAreAwaited(t *testing.T) {
	began := time.Unix(0, 0)
	c := &CoordinatorMachine{announcement: announcementState{roundAnnouncedAt: began},
		phaseDeadline: began.Add(time.Second + 60*time.Millisecond),
		linkUp:        true}
	c.cfg.Participants, c.cfg.Quorum, c.cfg.RoundTimeout, c.cfg.ReinviteInterval = 2, 1, time.Minute, time.Hour
	c.record.Phase, c.record.Plan.Kind, c.record.MixingBlockRound = CoordinatorCollecting, wire.KindTraining, 3
	c.record.Edges = []MixingEdge{{A: "a1", B: "a2", MixingWeight: 0.2, ClipBound: 1}}
	c.roster.memberByAgent = map[wire.AgentID]*rosterMember{"a1": {isPresent: true}}
	c.startCollectingEdgeReports()
	c.progress.drawCountByState[stateAccepted], c.reinviteAt = 2, began.Add(time.Second+30*time.Millisecond)
	if c.closeRoundIfReady(began.Add(time.Second)); c.mixing.edgeReportsDeadline.IsZero() {
		t.Fatal("it does not wait for reports")
	}
	for !c.isInPhase(CoordinatorClosing) {
		at, ok := c.Deadline()
		if c.Step(at, Tick{}); !ok || at.After(began.Add(2*time.Second)) {
			t.Fatalf("it is %v, and wakes at %v (%v)", c.record.Phase, at, ok)
		}
		if next, _ := c.Deadline(); !next.After(at) && !c.isInPhase(CoordinatorClosing) {
			t.Fatalf("at %v it wakes again at %v", at, next)
		}
	}
}
