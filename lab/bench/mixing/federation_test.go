package mixing

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// mixed runs agents that mix over the broker, and returns the cost of the given number of steps after a warm-up.
// Messages to and from the coordinator stay in memory. The agents compute only one gradient per block, so that the cost
// is mostly the cost of mixing.
func mixed(b *testing.B, at *site, graph shape, size, steps int, open bool) cost {
	b.Helper()
	uplink := memory.New(memory.Options{MailboxMessages: 1 << 16, MailboxBytes: 1 << 28})
	warm := steps / 10
	f := &bench{
		b: b, site: at, samples: samples(size), took: make(chan cost, 1), at: map[int]int{},
		begin: warm * partsOf(size), end: (warm + steps) * partsOf(size),
	}
	g := hosts.NewGroup(b)
	defer g.Stop()
	// The round ends with the first upload. Add as many steps as there are agents, so that all agents have taken the
	// measured steps before the first upload.
	g.RunCoordinator(f.lead(graph, size, warm+steps+agents, open), uplink.Connect("coordinator", nil))
	for i := range agents {
		g.RunAgent(f.agent(i),
			func(func() mqtt.Message) (mqtt.Conn, error) { return uplink.Connect(string(idOf(i)), nil), nil })
	}
	select {
	case took := <-f.took:
		return took
	case <-time.After(2 * time.Minute):
		b.Fatal("the block does not end")
		return cost{}
	}
}

// bench is a federation whose mixing speed is measured.
type bench struct {
	b       *testing.B
	site    *site
	samples *learner.Samples[float32]
	// The measurement starts when every agent has published `begin` snapshots and ends when every agent has published
	// `end` snapshots.
	begin, end int
	mu         sync.Mutex
	began      cost
	at         map[int]int // number of agents that have published `begin` or `end` snapshots; the key is begin or end
	took       chan cost
}

// watched is a connection that counts the snapshots that an agent publishes.
type watched struct {
	mqtt.Conn
	of        *bench
	published int // number of published snapshots; only the goroutine of the block uses it
}

func (w *watched) Publish(m mqtt.Message) error {
	if !strings.HasSuffix(m.Topic, "/0") { // The message is a snapshot.
		w.published++
		w.of.note(w.published)
	}
	return w.Conn.Publish(m)
}

// note starts or ends the measurement when the last agent has published the required number of snapshots.
func (f *bench) note(published int) {
	if published != f.begin && published != f.end {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.at[published]++; {
	case f.at[published] < agents:
	case published == f.begin:
		f.began = f.site.now(f.b)
	default:
		f.took <- f.site.since(f.b, f.began)
	}
}

// load returns the same few rows for all agents.
func (f *bench) load([]string, string) (*learner.Samples[float32], error) { return f.samples, nil }

// observe handles the events of all agents and the coordinator.
func (f *bench) observe(event observe.Event) {
	if x, failed := event.(training.LocalTrainingFailed); failed {
		f.b.Error(x.Err)
	}
}

// featuresOf returns the feature names of a model with the given size in bytes. Small models are linear.
func featuresOf(size int) []string {
	n := size / 4
	if h := hiddenOf(size); h != nil {
		n = n/int(h[0]) - 1
	}
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("x", i)
	}
	return all
}

func hiddenOf(size int) []uint32 {
	if size > wire.MaxSnapshotPart {
		return []uint32{128}
	}
	return nil
}

func samples(size int) *learner.Samples[float32] {
	names := strings.Join(featuresOf(size), ",")
	row := strings.Repeat("1,", len(featuresOf(size))) + "1\n"
	s, err := sources.ReadCSV[float32](strings.NewReader(names+",y\n"+row+row), "rows", featuresOf(size),
		"y", sources.RowFilter{})
	if err != nil {
		panic(err)
	}
	return s
}

// lead returns the configuration of a coordinator that runs one round.
func (f *bench) lead(graph shape, size, steps int, open bool) coordinator.Config {
	var ids []wire.AgentID
	var all []round.MixingEdge
	for i := range agents {
		ids = append(ids, idOf(i))
		for _, j := range graph.neighbours(i) {
			if i < j {
				all = append(all, round.MixingEdge{A: idOf(i), B: idOf(j), MixingWeight: 1 / float64(2*graph.next+1)})
			}
		}
	}
	cfg := hosts.Coordinator(f.b, federation, ids)
	cfg.Observer = testkit.Observer(f.observe)
	cfg.MakeEdges = func([]round.MixingAgent) (meshplan.MixingGraph, error) {
		return meshplan.MixingGraph{Edges: all, MixingAgents: agents}, nil
	}
	r := &cfg.Round
	*r = round.DefaultConfig()
	r.Algorithm, r.Sampling, r.Participants, r.Quorum, r.MaxAggregations = spec.FedDec, spec.SamplingWithReplacement,
		1, 1, 1
	r.Gather = round.GatherConfig{TargetAgents: agents, MinAgents: agents, WindowLength: time.Minute}
	cfg.Task = wire.Task{
		Name: "mixing", Features: featuresOf(size), TargetColumn: "y", MinSamples: 1,
		Model: wire.ModelSpec{HiddenUnits: hiddenOf(size), Outputs: 1, Activation: spec.ActivationTanh,
			Risk: spec.LossSquared},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, BatchSize: 1, StepSize: 1e-6,
			StepTimeBudgetMillis: 1,
			MinLocalSteps:        1, MaxLocalSteps: uint32(steps)},
		Mixing: wire.MixingSettings{IntervalSteps: 1, SnapshotRetryMillis: 1000, LateSnapshotMillis: 5000,
			SnapshotCodec: spec.CodecRaw,
			IsUnsealed:    open},
	}
	return cfg
}

func (f *bench) agent(i int) agent.Config {
	cfg := hosts.Agent(f.b, federation, idOf(i), uint64(i))
	cfg.TaskData.Source, cfg.Observer = data.MemorySource(f.load), testkit.Observer(f.observe)
	cfg.Mesh = &mesh.Config{
		ConnectNeighborBroker: func() (mqtt.Conn, error) {
			s, err := mqtt.Dial(context.Background(), login(f.site.address, federation, i))
			return &watched{Conn: s, of: f}, err
		},
		FillRandom: func(p []byte) { _, _ = crand.Read(p) },
	}
	return cfg
}
