package coordinator_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/edges"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// newMixing makes a federation of n agents on a ring; l draws of them send. Messages between neighbours go over
// a broker of their own, if there is one.
func newMixing(t *testing.T, n, l int, own *memory.Broker) *federation {
	f := newFederation(t, n, memory.Options{})
	r, task := &f.cfg.Round, &f.cfg.Task
	r.Algorithm, r.Sampling, r.Weights = spec.FedDec, spec.WithReplacement, spec.WeightsEqual
	r.Participants, r.Quorum = l, 1
	task.Training.Normalize, task.Training.StepSize = false, 0.05
	task.Mixing = wire.Mixing{Every: 1, Repeat: 500, Drain: 20000, Codec: spec.CodecRaw}
	f.cfg.Edges = func(agents []round.MeshAgent) (coordinator.Mesh, error) {
		var m coordinator.Mesh
		for i := range agents {
			j := (i + 1) % len(agents)
			m.Edges = append(m.Edges, round.Edge{A: agents[min(i, j)].ID, B: agents[max(i, j)].ID, Weight: 1. / 3})
		}
		slices.SortFunc(m.Edges, func(a,
			b round.Edge) int {
			return slices.Compare([]wire.AgentID{a.A, a.B}, []wire.AgentID{b.A, b.B})
		})
		return m, nil
	}
	for i, a := range f.agents {
		keys := rand.NewChaCha8([32]byte{byte(i)})
		a.cfg.Mesh = &agent.MeshConfig{Random: func(p []byte) { _, _ = keys.Read(p) }}
		if own != nil {
			a.cfg.Mesh.Connect = func() (mqtt.Conn, error) { return own.Connect(f.topics.ClientID(a.id), nil), nil }
		}
	}
	return f
}

// mixedAlone computes the run without any host: all agents step and mix, those that are drawn are averaged.
func (f *federation) mixedAlone() []float32 {
	must := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	p, r, n := f.standardised(), &f.cfg.Round, len(f.agents)
	h := uint64(p.Task.Training.MaxSteps)
	edges := make([][2]int, 0, n)
	for i := range n {
		j := (i + 1) % n
		edges = append(edges, [2]int{min(i, j), max(i, j)})
	}
	slices.SortFunc(edges, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	links, weights := d2d.NewLinks(n, edges), slices.Repeat([]float64{1. / 3}, n)
	w := p.Initial(r.Seed)
	for i := range r.Rounds {
		id := wire.RoundID(i + 2) // after the round of statistics
		x, y, steppers := make([][]float32, n), make([][]float32, n), make([]*task.Stepper[float32], n)
		for k, a := range f.agents {
			s, err := a.data.Load(f.cfg.Task.Features, f.cfg.Task.Target)
			must(err)
			must(p.Prepare(s))
			job := task.Job[float32]{Base: w, Samples: s, Weight: 1, Offset: uint64(i) * h,
				Rand: task.Source(r.Seed, id, task.Stream(a.id))}
			job.Steps, _ = p.Sizing().LocalSteps(a.cfg.StepTime)
			steppers[k], err = p.Stepper(job)
			must(err)
			x[k], y[k] = slices.Clone(w), make([]float32, len(w))
		}
		for t := uint64(1); t <= h; t++ {
			for k := range n {
				must(steppers[k].Take(x[k], t, t))
			}
			d2d.Mix(y, x, x, links, weights)
			x, y = y, x
		}
		rng := round.DrawSource(r.Seed, id)
		var sent []testkit.Sent[float32]
		times := make([]int, n)
		for range r.Participants {
			times[rng.IntN(n)]++
		}
		for k := range n {
			if times[k] == 0 {
				continue
			}
			out, err := steppers[k].Outcome(x[k])
			must(err)
			sent = append(sent, testkit.Sent[float32]{ID: f.agents[k].id, Factor: float64(times[k]), V: out.Vector})
		}
		next := make([]float32, len(w))
		must(round.Advance(next, w, testkit.Fold(r.Seed, 1, r.Participants, sent...)))
		w = next
	}
	return w
}

// FedDec over the broker gives the model of the plain loop, to the bit, when steps wait for their neighbours: whatever
// the order of arrival, over the coordinator's broker or one of the site, sealed or not, with mixing after every step
// or two.
func TestFedDec(t *testing.T) {
	for _, tt := range []struct {
		name   string
		own    bool
		change func(*federation)
	}{
		{"one broker", false, func(*federation) {}},
		{"two brokers", true, func(*federation) {}},
		{"open", true, func(f *federation) { f.cfg.Task.Mixing.Open = true }},
		{"a schedule", true, func(f *federation) {
			f.cfg.Task.Training.StepSize, f.cfg.Task.Training.StrongConvexity, f.cfg.Task.Training.Gamma = 0, 1, 40
		}},
		{"agents that afford fewer gradients", true, func(f *federation) {
			for i, a := range f.agents {
				a.cfg.StepTime = time.Duration(100+100*i) * time.Millisecond // E_k = 10, 5, 3, 2, 2 of H = 10
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var site *memory.Broker
				if tt.own {
					rng := rand.New(rand.NewPCG(7, 7))
					site = memory.New(memory.Options{Delay: func(string) time.Duration {
						return time.Duration(rng.IntN(200)) * time.Millisecond
					}})
				}
				f := newMixing(t, 5, 3, site)
				for _, a := range f.agents {
					a.cfg.StepTime = 50 * time.Millisecond
				}
				tt.change(f)
				f.start()
				hash := f.finished(time.Hour)
				if want := sha256.Sum256(wire.AppendVector(nil, f.mixedAlone())); hash != want {
					t.Errorf("model %x, want %x as computed directly", hash[:4], want[:4])
				}
				for _, x := range facts[agent.Trained](f) {
					if x.Mixed == nil || x.Mixed.Flows != 20 || x.Mixed.Late > 0 {
						t.Errorf("round %d: %+v", x.Round, x.Mixed)
					}
				}
			})
		})
	}
}

// FedDec goes on while neighbours' messages are lost, an agent is killed and comes back, and one has no way to its
// neighbours.
func TestFedDecTroubled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 3))
		site := memory.New(memory.Options{
			Delay: func(string) time.Duration { return time.Duration(rng.IntN(100)) * time.Millisecond },
			Drop:  func(string) bool { return rng.Float64() < 0.2 },
		})
		f := newMixing(t, 6, 3, site)
		f.cfg.Task.Mixing.Wait = 300
		f.cfg.Round.Rounds = 8
		for _, a := range f.agents {
			a.cfg.StepTime = 20 * time.Millisecond
		}
		killed := f.agents[2]
		killed.moment = func(fact any) {
			if w, ok := fact.(round.WorkStarted); ok && w.Round == 4 && killed.started == 1 {
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
		for _, x := range facts[agent.Trained](f) {
			if x.Mixed != nil {
				late += x.Mixed.Late
			}
		}
		if late == 0 {
			t.Error("no flow was late: nothing was tried")
		}
		models := facts[coordinator.ModelReady](f)
		first, last := models[0].Risk, models[len(models)-1].Risk
		if !(last < first/2) {
			t.Errorf("risk %v → %v", first, last)
		}
		if killed.started != 2 {
			t.Errorf("the agent was started %d times", killed.started)
		}
		fmt.Fprintf(t.Output(), "risk %.3f → %.3f, %d flows late\n", first, last, late)
	})
}

// Agents of a cell find each other at their broker, and mix along what they found. One that dies without a word is
// left out, though the broker keeps its beacon, and has edges again when it is back.
func TestDiscoveredEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 5))
		site := memory.New(memory.Options{Delay: func(string) time.Duration {
			return time.Duration(rng.IntN(2000)) * time.Microsecond
		}})
		f := newMixing(t, 6, 3, site)
		maker, err := edges.New(spec.EdgesDiscovered, 0, "", spec.Metropolis)
		if err != nil {
			t.Fatal(err)
		}
		f.cfg.Edges, f.cfg.Standardize = maker.Make, false
		r := &f.cfg.Round
		r.Rounds, r.Pause, r.Gather = 12, 20*time.Second,
			round.Gather{Minimum: 5, Within: 30 * time.Second, Spread: time.Second}
		f.cfg.Task.Training.StepSize = 1e-5 // as the columns are not standardised
		f.cfg.Task.Mixing.Wait = 300
		for _, a := range f.agents {
			a.cfg.Mesh.Cell, a.cfg.Mesh.MaxDegree, a.cfg.StepTime = "hall", 2, 20*time.Millisecond
		}
		dead := f.agents[2]
		f.coord.moment = func(fact any) {
			switch m, _ := fact.(coordinator.MeshMade); m.Round {
			case 3:
				dead.kill()
				site.Disconnect(f.topics.ClientID(dead.id))
			case 8:
				dead.again()
			}
		}
		f.start()
		f.finished(time.Hour)
		for _, m := range facts[coordinator.MeshMade](f) {
			has := slices.ContainsFunc(m.Edges, func(e round.Edge) bool { return e.A == dead.id || e.B == dead.id })
			agents := 6
			if away := m.Round > 6 && m.Round < 8; away {
				agents = 5
				if has {
					t.Errorf("round %d has edges to the dead: %v", m.Round, m.Edges)
				}
			} else if m.Round > 3 && m.Round < 12 {
				continue // until it is noticed
			}
			if len(m.Parts) != 1 || m.Agents != agents || len(m.Edges) != agents {
				t.Errorf("round %d: %d agents in %v, edges %v", m.Round, m.Agents, m.Parts, m.Edges)
			}
		}
		for _, a := range f.agents {
			if found := facts[agent.NeighborsFound](f, a.id); len(found) == 0 || len(found) > 8 {
				t.Errorf("%s found its neighbours %d times", a.id, len(found))
			}
			a.stop()
		}
		late := site.Connect("late", nil)
		late.Subscribe(mqtt.AtMostOnce, f.topics.Beacons("hall"))
		for end := time.After(time.Second); ; {
			select {
			case e := <-late.Events():
				if m, ok := e.(mqtt.Received); ok {
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
