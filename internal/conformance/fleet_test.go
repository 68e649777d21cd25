package conformance

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// rows is the seed of an agent's generated data, which have three features and a target.
type rows uint64

func (r rows) load(features []string, _ string) (*learner.Samples[float32], error) {
	const n = 8
	rng := rand.New(rand.NewPCG(uint64(r), 7))
	var xs, ys []float32
	for range n {
		y := float32(0)
		for range features {
			x := float32(rng.NormFloat64())
			xs, y = append(xs, x), y+x
		}
		ys = append(ys, y)
	}
	return learner.NewSamples(len(features), xs, ys), nil
}

// fleet is a coordinator with agents, all in this process.
type fleet struct {
	*hosts.Group
	t      *testing.T
	b      *broker
	agents []wire.AgentID
	closed chan round.RoundClosed
}

// newFleet returns a fleet of n agents, without starting it.
func newFleet(t *testing.T, b *broker, n int) *fleet {
	t.Helper()
	f := &fleet{Group: hosts.NewGroup(t), t: t, b: b, closed: make(chan round.RoundClosed, 100)}
	for i := range n {
		f.agents = append(f.agents, agentID(i))
	}
	return f
}

// connect opens a connection for one program of the fleet, with the options that the daemons use.
func (f *fleet) connect(id wire.AgentID, more func(*mqtt.Options)) (mqtt.Conn, error) {
	o := f.b.as(clientOf(id))
	more(&o)
	return mqtt.Dial(context.Background(), o)
}

// startCoordinator starts a run of one statistics round and the given number of training rounds. Every round requires
// all agents. The model has 101 parameters.
func (f *fleet) startCoordinator(rounds int) {
	f.t.Helper()
	n := len(f.agents)
	cfg := hosts.Coordinator(f.t, federation, f.agents)
	cfg.Round, cfg.Standardize, cfg.MaxBufferedUpdateBytes, cfg.SelfTestTimeout = round.DefaultConfig(), true, 64<<20,
		patience
	cfg.Task = wire.Task{
		Name: "sum", Features: []string{"x", "y", "z"}, TargetColumn: "sum", MinSamples: 1,
		Model: wire.ModelSpec{HiddenUnits: []uint32{20}, Outputs: 1, Activation: spec.ActivationTanh,
			Risk: spec.LossSquared, HasBias: true},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, BatchSize: 4, StepSize: 0.1,
			StepTimeBudgetMillis: 1000,
			MinLocalSteps:        1, MaxLocalSteps: 3},
	}
	cfg.Observer = testkit.Observer(func(event observe.Event) {
		if c, ok := event.(round.RoundClosed); ok {
			f.closed <- c
		}
	})
	r := &cfg.Round
	r.Participants, r.Quorum, r.MaxAggregations = n, n, rounds
	r.Gather = round.GatherConfig{TargetAgents: n, MinAgents: n, WindowLength: 2 * time.Minute,
		HelloSpread: time.Second}
	r.RoundTimeout = 5 * time.Minute
	conn, err := f.connect(wire.CoordinatorID,
		func(o *mqtt.Options) { o.MailboxMessages, o.MailboxBytes, o.OutboxMessages = 16384, 256<<20, 16384 })
	if err != nil {
		f.t.Fatal(err)
	}
	f.RunCoordinator(cfg, conn)
}

// startAgent starts agent number i. It calls link whenever the agent's connection is established or lost.
func (f *fleet) startAgent(i int, link func(up bool)) {
	f.t.Helper()
	cfg := hosts.Agent(f.t, federation, agentID(i), uint64(i))
	cfg.TaskData.Source, cfg.SelfTestTimeout = data.MemorySource(rows(i).load), patience
	cfg.Observer = testkit.Observer(func(event observe.Event) {
		if c, ok := event.(host.BrokerLinkChanged); ok && link != nil {
			link(c.IsConnected)
		}
	})
	f.RunAgent(cfg, func(will func() mqtt.Message) (mqtt.Conn, error) {
		return f.connect(cfg.ID, func(o *mqtt.Options) { o.Will = will })
	})
}

// wantRound waits until a round closes, and checks that the round contains the updates of all agents.
func (f *fleet) wantRound(limit time.Duration) {
	f.t.Helper()
	select {
	case c := <-f.closed:
		if n := len(f.agents); c.AcceptedUpdates != n || c.SelectedAgents != n {
			f.t.Errorf("a round closed with %d updates of %d agents, want all %d: %+v", c.AcceptedUpdates,
				c.SelectedAgents, n, c)
		}
	case <-time.After(limit):
		f.t.Fatalf("no round closed in %v", limit)
	}
}

// testFleet runs one statistics round and two training rounds with n agents.
func testFleet(t *testing.T, s subject, n int) {
	b := s.start(t, needs{agents: n})
	f := newFleet(t, b, n)
	begun := time.Now()
	f.startCoordinator(2)
	for i := range n {
		f.startAgent(i, nil)
	}
	for i := range 3 {
		f.wantRound(5 * time.Minute)
		t.Logf("round %d of %d agents closed after %v", i, n, time.Since(begun).Round(time.Millisecond))
	}
	f.Stop()
	b.logMemory(t)
}

// testKilled kills a broker that stores no state, first between rounds and then during a round. After the restart, the
// coordinator must publish the missing messages again.
func testKilled(t *testing.T, s subject) {
	const n, rounds = 10, 8
	b := s.start(t, needs{agents: n})
	f := newFleet(t, b, n)
	f.startCoordinator(rounds)
	for i := range n {
		f.startAgent(i, nil)
	}
	for i := range rounds + 1 {
		f.wantRound(2 * time.Minute)
		if i%2 == 0 {
			b.proc.Kill()
			b.proc.Start(t)
		}
	}
	f.Stop()
	testRetainedOverKill(t, s, b)
}

func testRetainedOverKill(t *testing.T, s subject, b *broker) {
	const n = 20
	writer := mqtttest.Dial(t, b.as(anyOne(0)))
	for i := range n {
		mqtttest.Publish(t, writer, mqtt.Message{Topic: fmt.Sprint("kept/", i), Payload: make([]byte, 60<<10),
			Retained: true})
	}
	mqtttest.SettleRetained(t, writer, writer)
	b.proc.Kill()
	b.proc.Start(t)
	reader := mqtttest.Dial(t, b.as(anyOne(1)))
	mqtttest.SettleRetained(t, reader, reader)
	returned := map[string]bool{}
	for i := range n {
		topic := fmt.Sprint("kept/", i)
		reader.Subscribe(mqtt.AtLeastOnce, topic)
		mqtttest.Publish(t, reader, mqtt.Message{Topic: topic})
		for m := (mqtt.Message{Retained: true}); m.Retained; {
			if m = mqtttest.Received(t, reader); m.Retained {
				returned[m.Topic] = len(m.Payload) == 60<<10
			}
		}
	}
	t.Logf("%d of %d that were retained are there after a kill", len(returned), n)
	s.saw(t, survives, yesIf(len(returned) == n && !slices.Contains(slices.Collect(maps.Values(returned)), false)))
}
