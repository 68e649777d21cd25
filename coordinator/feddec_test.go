package coordinator_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/edges"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// newMixing returns a federation of n agents on a ring, each of which mixes with its neighbours. Each round makes l
// draws. If own is not nil, messages between neighbours use that broker.
func newMixing(t *testing.T, n, l int, own *memory.Broker) *federation {
	f := newFederation(t, n, memory.Options{})
	r, task := &f.cfg.Round, &f.cfg.Task
	r.Algorithm, r.Sampling, r.AgentWeightRule = spec.FedDec, spec.SamplingWithReplacement, spec.WeightsEqual
	r.Participants, r.Quorum = l, 1
	task.Training.NormalizesStepSize, task.Training.StepSize = false, 0.05
	task.Mixing = wire.MixingSettings{IntervalSteps: 1, SnapshotRetryMillis: 500, LateSnapshotMillis: 20000,
		SnapshotCodec: spec.CodecRaw}
	f.cfg.MakeEdges = func(agents []round.MixingAgent) (meshplan.MixingGraph, error) {
		var m meshplan.MixingGraph
		for i := range agents {
			j := (i + 1) % len(agents)
			m.Edges = append(m.Edges, round.MixingEdge{A: agents[min(i, j)].ID, B: agents[max(i, j)].ID,
				MixingWeight: 1. / 3})
		}
		slices.SortFunc(m.Edges, func(a,
			b round.MixingEdge) int {
			return slices.Compare([]wire.AgentID{a.A, a.B}, []wire.AgentID{b.A, b.B})
		})
		return m, nil
	}
	for i, a := range f.agents {
		keys := rand.NewChaCha8([32]byte{byte(i)})
		a.cfg.Mesh = &mesh.Config{FillRandom: func(p []byte) { _, _ = keys.Read(p) }}
		if own != nil {
			a.cfg.Mesh.ConnectNeighborBroker = func() (mqtt.Conn, error) {
				return own.Connect(f.topics.ClientID(a.id),
					nil), nil
			}
		}
	}
	return f
}

// TestFedDec checks that the algorithm FedDec yields the same model, bit for bit, if agents wait for their neighbours
// at each step. The order in which messages arrive, the broker and the encryption must not matter. A test in lab/world
// compares the model with the simulator's.
func TestFedDec(t *testing.T) {
	models := map[wire.Digest]string{}
	for _, tt := range []struct {
		name   string
		delays uint64 // seed of the delays at the local broker; 0 means the coordinator's broker without delays
		open   bool
	}{
		{"one broker", 0, false}, {"two brokers", 7, false}, {"other delays, open", 8, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var site *memory.Broker
				if tt.delays > 0 {
					rng := rand.New(rand.NewPCG(tt.delays, 7))
					site = memory.New(memory.Options{Delay: func(string) time.Duration {
						return time.Duration(rng.IntN(200)) * time.Millisecond
					}})
				}
				f := newMixing(t, 5, 3, site)
				f.cfg.Task.Mixing.IsUnsealed = tt.open
				for i, a := range f.agents {
					// The agents compute E_k = 10, 10, 6, 5, 4 of the H = 10 local steps in time.
					a.cfg.Training.DeclaredStepTime = time.Duration(50+50*i) * time.Millisecond
				}
				f.start()
				models[f.finished(time.Hour)] = tt.name
				for _, x := range events[training.LocalTrainingFinished](f) {
					if x.MixingStats == nil || x.MixingStats.AppliedFlows != 20 || x.MixingStats.LateFlows > 0 {
						t.Errorf("round %d: %+v", x.Round, x.MixingStats)
					}
				}
			})
		})
	}
	if len(models) != 1 {
		t.Errorf("%d models: %v", len(models), models)
	}
}

// TestFedDecTroubled checks that FedDec continues despite lost messages between neighbours, a killed agent, and an
// agent without a connection to its neighbours.
func TestFedDecTroubled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 3))
		site := memory.New(memory.Options{
			Delay: func(string) time.Duration { return time.Duration(rng.IntN(100)) * time.Millisecond },
			Drop:  func(string) bool { return rng.Float64() < 0.2 },
		})
		f := newMixing(t, 6, 3, site)
		f.cfg.Task.Mixing.SnapshotWaitMillis = 300
		f.cfg.Round.MaxAggregations = 8
		for _, a := range f.agents {
			a.cfg.Training.DeclaredStepTime = 20 * time.Millisecond
		}
		killed := f.agents[2]
		killed.moment = func(event any) {
			if w, ok := event.(agentround.WorkStarted); ok && w.Round == 4 && killed.started == 1 {
				killed.kill()
				go func() {
					wait(10 * time.Second)
					killed.again()
				}()
			}
		}
		f.start()
		f.finished(time.Hour)
		late := uint64(0)
		for _, x := range events[training.LocalTrainingFinished](f) {
			if x.MixingStats != nil {
				late += x.MixingStats.LateFlows
			}
		}
		if late == 0 {
			t.Error("no flow was late: nothing was tried")
		}
		models := events[aggregation.ModelReady](f)
		first, last := models[0].MeanReportedRisk, models[len(models)-1].MeanReportedRisk
		if !(last < first/2) {
			t.Errorf("risk %v → %v", first, last)
		}
		if killed.started != 2 {
			t.Errorf("the agent was started %d times", killed.started)
		}
		fmt.Fprintf(t.Output(), "risk %.3f → %.3f, %d flows late\n", first, last, late)
	})
}

// TestDiscoveredEdges checks that agents in one cell discover each other at their broker and mix with each other. An
// agent that fails is excluded, although the broker still retains its beacon (discovery message). After it returns, it
// has edges again.
func TestDiscoveredEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 5))
		site := memory.New(memory.Options{Delay: func(string) time.Duration {
			return time.Duration(rng.IntN(2000)) * time.Microsecond
		}})
		f := newMixing(t, 6, 3, site)
		maker, err := edges.New(spec.EdgesDiscovered, 0, "", spec.EdgeWeightsMetropolis)
		if err != nil {
			t.Fatal(err)
		}
		f.cfg.MakeEdges, f.cfg.IssuesAttestations, f.cfg.Standardize = maker.MakeMesh, true, false
		r := &f.cfg.Round
		r.MaxAggregations, r.PauseBetweenRounds, r.Gather = 12, 20*time.Second,
			round.GatherConfig{MinAgents: 5, WindowLength: 30 * time.Second, HelloSpread: time.Second}
		f.cfg.Task.Training.StepSize = 1e-5 // small, because the columns are not standardised
		f.cfg.Task.Mixing.SnapshotWaitMillis = 300
		for _, a := range f.agents {
			a.cfg.Mesh.Cell, a.cfg.Mesh.MaxNeighbors, a.cfg.Training.DeclaredStepTime = "hall", 2, 20*time.Millisecond
		}
		dead := f.agents[2]
		f.coord.moment = func(event any) {
			switch m, _ := event.(meshplan.MeshComputed); m.Round {
			case 3:
				dead.kill()
				site.Disconnect(f.topics.ClientID(dead.id))
			case 8:
				dead.again()
			}
		}
		f.start()
		f.finished(time.Hour)
		for _, m := range events[meshplan.MeshComputed](f) {
			has := slices.ContainsFunc(m.Edges,
				func(e round.MixingEdge) bool { return e.A == dead.id || e.B == dead.id })
			agents := 6
			if away := m.Round > 6 && m.Round < 8; away {
				agents = 5
				if has {
					t.Errorf("round %d has edges to the dead: %v", m.Round, m.Edges)
				}
			} else if m.Round > 3 && m.Round < 12 {
				continue // the agent's failure is not detected yet
			}
			if len(m.ConnectedComponents) != 1 || m.MixingAgents != agents || len(m.Edges) != agents {
				t.Errorf("round %d: %d agents in %v, edges %v", m.Round, m.MixingAgents, m.ConnectedComponents, m.Edges)
			}
		}
		for _, a := range f.agents {
			if found := events[mesh.NeighborsChosen](f, a.id); len(found) == 0 || len(found) > 8 {
				t.Errorf("%s found its neighbours %d times", a.id, len(found))
			}
			a.stop()
		}
		late := site.Connect("late", nil)
		late.Subscribe(mqtt.AtMostOnce, f.topics.CellBeaconsFilter("hall"))
		for end := time.After(time.Second); ; {
			select {
			case e := <-late.Events():
				if m, ok := e.(mqtt.MessageReceived); ok {
					t.Errorf("%s is left behind", m.Topic)
				}
				continue
			case <-end:
			}
			break
		}
		_ = late.Close()
	})
}
