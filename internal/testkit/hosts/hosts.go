// Package hosts runs coordinators and agents in the process of a test, on any
// connections. Package testkit runs the finished programs instead.
package hosts

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// TestKey is a party's key in every test.
func TestKey(id wire.AgentID) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(id))
	return ed25519.NewKeyFromSeed(seed[:])
}

// PublicOf is a party's public key in every test.
func PublicOf(id wire.AgentID) ed25519.PublicKey { return TestKey(id).Public().(ed25519.PublicKey) }

// TopicsOf are a federation's.
func TopicsOf(t testing.TB, federation wire.FederationName) mqtt.Topics {
	t.Helper()
	topics, err := mqtt.NewTopics("", string(federation))
	if err != nil {
		t.Fatal(err)
	}
	return topics
}

// Coordinator is a coordinator's configuration but for the task, the rounds and the observer, with a folder of the
// test's.
func Coordinator(t testing.TB, federation wire.FederationName, agents []wire.AgentID) coordinator.Config {
	keys := map[wire.AgentID]ed25519.PublicKey{}
	for _, id := range agents {
		keys[id] = PublicOf(id)
	}
	return coordinator.Config{
		Federation: federation, Key: TestKey(wire.CoordinatorID), Agents: enrolled.NewListFromKeys(keys),
		Topics: TopicsOf(t, federation), StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Rand: rand.New(rand.NewPCG(1, 2)), FillRandom: DeterministicBytes(2),
	}
}

// Agent is an agent's configuration but for the data and the observer, with a folder of the test's. seed is of its
// random numbers.
func Agent(t testing.TB, federation wire.FederationName, id wire.AgentID, seed uint64) agent.Config {
	return agent.Config{
		Federation: federation, ID: id,
		Identity: identity.Config{Key: TestKey(id), Coordinator: PublicOf(wire.CoordinatorID)},
		Topics:   TopicsOf(t, federation), StateDir: t.TempDir(), BootEpoch: 1, MaxBlobBytes: 1 << 20,
		TaskData: taskdata.Config{MinRows: 1}, Logger: slog.New(slog.DiscardHandler), Rand: rand.New(rand.NewPCG(seed,
			3)),
	}
}

// Group is hosts that run until Stop, at the latest at the end of the test.
type Group struct {
	t       testing.TB
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup
}

// NewGroup makes a group without hosts.
func NewGroup(t testing.TB) *Group {
	g := &Group{t: t}
	g.ctx, g.end = context.WithCancel(context.Background())
	t.Cleanup(g.Stop)
	return g
}

// RunCoordinator runs a coordinator.
func (g *Group) RunCoordinator(cfg coordinator.Config, conn mqtt.Conn) {
	g.t.Helper()
	c, err := coordinator.New(cfg, conn)
	g.run(wire.CoordinatorID, c, err)
}

// RunAgent runs an agent.
func (g *Group) RunAgent(cfg agent.Config, connect func(will func() mqtt.Message) (mqtt.Conn, error)) {
	g.t.Helper()
	a, err := agent.New(cfg, connect)
	g.run(cfg.ID, a, err)
}

func (g *Group) run(id wire.AgentID, host interface{ Run(context.Context) error }, err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
	g.running.Go(func() {
		if err := host.Run(g.ctx); err != nil {
			g.t.Errorf("%s: %v", id, err)
		}
	})
}

// Stop ends all hosts in good order.
func (g *Group) Stop() {
	g.end()
	g.running.Wait()
}

// DeterministicBytes fills key material with numbers that are the same in each test.
func DeterministicBytes(seed uint64) func(b []byte) {
	rng := rand.New(rand.NewPCG(seed, 4))
	return func(b []byte) {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	}
}
