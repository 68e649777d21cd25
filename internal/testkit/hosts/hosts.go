// Package hosts runs coordinators and agents inside the test process, with any implementation of mqtt.Conn. Use package
// testkit to run the compiled programs instead.
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

// TestKey returns the private key that tests use for the agent or coordinator with this id.
func TestKey(id wire.AgentID) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(id))
	return ed25519.NewKeyFromSeed(seed[:])
}

// PublicOf returns the public key that belongs to TestKey(id).
func PublicOf(id wire.AgentID) ed25519.PublicKey { return TestKey(id).Public().(ed25519.PublicKey) }

// TopicsOf returns the MQTT topics of the federation with this name.
func TopicsOf(t testing.TB, federation wire.FederationName) mqtt.Topics {
	t.Helper()
	topics, err := mqtt.NewTopics("", string(federation))
	if err != nil {
		t.Fatal(err)
	}
	return topics
}

// Coordinator returns a coordinator configuration with a temporary state folder. The caller must set the task, the
// rounds and the observer.
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

// Agent returns an agent configuration with a temporary state folder. The caller must set the data and the observer.
// seed initialises the agent's random numbers.
func Agent(t testing.TB, federation wire.FederationName, id wire.AgentID, seed uint64) agent.Config {
	return agent.Config{
		Federation: federation, ID: id,
		Identity: identity.Config{Key: TestKey(id), Coordinator: PublicOf(wire.CoordinatorID)},
		Topics:   TopicsOf(t, federation), StateDir: t.TempDir(), BootEpoch: 1, MaxBlobBytes: 1 << 20,
		TaskData: taskdata.Config{MinRows: 1}, Logger: slog.New(slog.DiscardHandler), Rand: rand.New(rand.NewPCG(seed,
			3)),
	}
}

// Group is a set of coordinators and agents that run in the test process. They run until Stop is called or the test
// ends.
type Group struct {
	t       testing.TB
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup
}

// NewGroup returns an empty group, which is stopped at the end of the test.
func NewGroup(t testing.TB) *Group {
	g := &Group{t: t}
	g.ctx, g.end = context.WithCancel(context.Background())
	t.Cleanup(g.Stop)
	return g
}

// RunCoordinator starts a coordinator in the group.
func (g *Group) RunCoordinator(cfg coordinator.Config, conn mqtt.Conn) {
	g.t.Helper()
	c, err := coordinator.New(cfg, conn)
	g.run(wire.CoordinatorID, c, err)
}

// RunAgent starts an agent in the group.
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

// Stop shuts down all coordinators and agents of the group gracefully.
func (g *Group) Stop() {
	g.end()
	g.running.Wait()
}

// DeterministicBytes returns a function that fills b with pseudo-random bytes. Equal seeds give equal bytes, so that
// generated keys are the same in every run of a test.
func DeterministicBytes(seed uint64) func(b []byte) {
	rng := rand.New(rand.NewPCG(seed, 4))
	return func(b []byte) {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	}
}
