package mixing

import (
	"context"
	"crypto/ed25519"
	crand "crypto/rand"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// mixed has agents mix over the broker and returns what that many steps took, after some in which they have all met.
// What passes between them and the coordinator goes through memory. The agents take one gradient in the block, so that
// the steps are mixing and little else.
func mixed(b *testing.B, at *site, graph shape, size, steps int, open bool) cost {
	b.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	uplink := memory.New(memory.Options{MailboxMessages: 1 << 16, MailboxBytes: 1 << 28})
	topics, err := mqtt.NewTopics("", federation)
	if err != nil {
		b.Fatal(err)
	}
	warm := steps / 10
	f := &bench{
		b: b, topics: topics, site: at, samples: samples(size), took: make(chan cost, 1), at: map[int]int{},
		begin: warm * partsOf(size), end: (warm + steps) * partsOf(size),
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	public := map[wire.AgentID]ed25519.PublicKey{}
	for i := range agents {
		public[idOf(i)] = keyOf(i).Public().(ed25519.PublicKey)
	}
	// The round ends with the first upload: by then all agents, who are at most half the graph apart, have taken what
	// is timed.
	c, err := coordinator.New(f.lead(public, graph, size, warm+steps+agents, open), uplink.Connect("coordinator", nil))
	if err != nil {
		b.Fatal(err)
	}
	running.Go(func() { _ = c.Run(ctx) })
	for i := range agents {
		a, err := agent.New(f.agent(i),
			func(func() mqtt.Message) (mqtt.Conn, error) { return uplink.Connect(string(idOf(i)), nil), nil })
		if err != nil {
			b.Fatal(err)
		}
		running.Go(func() { _ = a.Run(ctx) })
	}
	select {
	case took := <-f.took:
		return took
	case <-ctx.Done():
		b.Fatal("the block does not end")
		return cost{}
	}
}

// bench is a federation's.
type bench struct {
	b       *testing.B
	topics  mqtt.Topics
	site    *site
	samples *learner.Samples[float32]
	// The clock runs from when all have published so many messages until all have published this many.
	begin, end int
	mu         sync.Mutex
	began      cost
	at         map[int]int // how many agents have come to the beginning, and to the end
	took       chan cost
}

// watched counts the snapshots that an agent publishes.
type watched struct {
	mqtt.Conn
	of        *bench
	published int // by the one goroutine of the block
}

func (w *watched) Publish(m mqtt.Message) error {
	if !strings.HasSuffix(m.Topic, "/0") { // a snapshot
		w.published++
		w.of.note(w.published)
	}
	return w.Conn.Publish(m)
}

// note keeps the time at which the last agent comes to the beginning, and to the end.
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

// Load gives all agents the same few rows.
func (f *bench) Load([]string, string) (*learner.Samples[float32], error) { return f.samples, nil }

// observe hears all programs.
func (f *bench) observe(fact any) {
	if x, failed := fact.(agent.TrainingFailed); failed {
		f.b.Error(x.Err)
	}
}

func keyOf(i int) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(slices.Repeat([]byte{byte(i)}, ed25519.SeedSize))
}

// featuresOf a model of this many bytes, which is linear if it is small.
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
	s, err := learner.ReadCSV[float32](strings.NewReader(names+",y\n"+row+row), "rows", featuresOf(size),
		"y", learner.Filter{})
	if err != nil {
		panic(err)
	}
	return s
}

// lead is the coordinator's configuration for one round.
func (f *bench) lead(public map[wire.AgentID]ed25519.PublicKey, graph shape, size, steps int,
	open bool) coordinator.Config {
	r := round.DefaultConfig()
	r.Algorithm, r.Sampling, r.Participants, r.Quorum, r.Rounds = spec.FedDec, spec.WithReplacement, 1, 1, 1
	r.Gather = round.Gather{Target: agents, Minimum: agents, Within: time.Minute}
	var all []round.Edge
	for i := range agents {
		for _, j := range graph.neighbours(i) {
			if i < j {
				all = append(all, round.Edge{A: idOf(i), B: idOf(j), Weight: 1 / float64(2*graph.next+1)})
			}
		}
	}
	return coordinator.Config{
		Federation: federation, Key: keyOf(agents), Agents: public, Topics: f.topics, Round: r,
		Task: wire.Task{
			Name: "mixing", Features: featuresOf(size), Target: "y", MinSamples: 1,
			Model: wire.Model{Hidden: hiddenOf(size), Outputs: 1, Activation: spec.ActivationTanh,
				Risk: spec.RiskSquared},
			Training: wire.Training{Exchange: spec.ExchangeParameters, BatchSize: 1, StepSize: 1e-6, Budget: 1,
				MinSteps: 1, MaxSteps: uint32(steps)},
			Mixing: wire.Mixing{Every: 1, Repeat: 1000, Drain: 5000, Codec: spec.CodecRaw, Open: open},
		},
		Edges: func([]round.MeshAgent) (coordinator.Mesh, error) {
			return coordinator.Mesh{Edges: all, Agents: agents}, nil
		},
		Dir:      f.b.TempDir(),
		Observer: testkit.Observer[coordinator.Fact, round.CoordinatorFact](f.observe),
		Logger:   slog.New(slog.DiscardHandler), Rand: rand.New(rand.NewPCG(1, 1)),
	}
}

func (f *bench) agent(i int) agent.Config {
	return agent.Config{
		Federation: federation, ID: idOf(i), Key: keyOf(i), Coordinator: keyOf(agents).Public().(ed25519.PublicKey),
		Topics: f.topics,
		Data:   f, Dir: f.b.TempDir(), Boot: 1, MinRows: 1, MaxModel: 1 << 20, StepTime: 0,
		Observer: testkit.Observer[agent.Fact, round.AgentFact](f.observe), Logger: slog.New(slog.DiscardHandler),
		Rand: rand.New(rand.NewPCG(2, uint64(i))),
		Mesh: &agent.MeshConfig{
			Connect: func() (mqtt.Conn, error) {
				s, err := mqtt.Dial(context.Background(), login(f.site.address, federation, i))
				return &watched{Conn: s, of: f}, err
			},
			Random: func(p []byte) { _, _ = crand.Read(p) },
		},
	}
}
