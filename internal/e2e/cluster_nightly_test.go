//go:build nightly

package e2e

import (
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// orders records every announcement that arrives at a broker.
type orders struct {
	mu  sync.Mutex
	all []wire.AnnouncementPosition
}

// hearOrders records the announcements that arrive at a broker until the end of the test.
func hearOrders(t *testing.T, broker string) *orders {
	t.Helper()
	conn, err := mqtt.Dial(t.Context(), mqtt.Options{URL: broker, ClientID: "observer"})
	if err != nil {
		t.Fatal(err)
	}
	conn.Subscribe(mqtt.AtMostOnce, "fl/v1/e2e/round")
	o, ended := &orders{}, make(chan struct{})
	go func() {
		defer close(ended)
		for e := range conn.Events() {
			if r, is := e.(mqtt.MessageReceived); is && len(r.Payload) > 0 {
				o.take(t, r.Payload)
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return o
}

func (o *orders) take(t *testing.T, payload []byte) {
	e, err := wire.ParseEnvelope(payload)
	if err != nil {
		t.Error(err)
		return
	}
	a, err := wire.DecodeAnnouncement(e.Body)
	if err != nil {
		t.Error(err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, wire.AnnouncementPositionOf(e.Header, &a))
}

// wantRising checks that the positions of the recorded announcements never decrease, and that the announcements have
// the given number of different epochs.
func (o *orders) wantRising(t *testing.T, epochs wire.Epoch) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.IsSortedFunc(o.all, wire.AnnouncementPosition.Compare) {
		t.Errorf("an announcement is earlier than one before it: %v", o.all)
	}
	if n := len(o.all); n == 0 || o.all[n-1].Epoch < epochs {
		t.Errorf("%d announcements came, want some of epoch %d or later", n, epochs)
	}
}

const withoutEnd = `{participants: 3, quorum: 3, rounds: 0, pause: 200ms, deadline: 60s, ` +
	`gather: {target: 3, minimum: 3, within: 30s, spread: 10ms}}`

// takenOver waits until a coordinator other than from leads and has closed two rounds since the given time. takenOver
// returns the name of the new leader.
func (c *cluster) takenOver(t *testing.T, from string, since time.Time) (to string) {
	t.Helper()
	to = c.leader(t, c.but(from)...)
	c.replicas[to].Await(t, "round opened")
	t.Logf("%s leads, %.1f s later", to, time.Since(since).Seconds())
	before := c.history(t, to)
	c.awaitRounds(t, to, len(before)+2)
	return to
}

// end waits until two coordinators have a model of the same version, and then stops all programs. It checks that there
// is only one model for each version, and that each agent trained once for each round.
func (c *cluster) end(t *testing.T, heard *orders, epochs wire.Epoch) {
	t.Helper()
	for _, id := range []string{"one", "two", "three"} {
		c.agents[id].Stop(t, syscall.SIGTERM, 0)
	}
	c.awaitCopy(t)
	for _, name := range c.names {
		c.replicas[name].Kill()
		if strings.Contains(c.replicas[name].Log(), "round abandoned") {
			t.Errorf("%s has abandoned a round:\n%s", name, c.replicas[name].Log())
		}
	}
	heard.wantRising(t, epochs)
	c.wantOneModel(t)
	c.wantOneTraining(t)
}

// ends waits until a coordinator exits with the message why. ends then restarts the coordinator.
func (c *cluster) ends(t *testing.T, name, why string) {
	t.Helper()
	c.replicas[name].Wait(t, 1)
	if log := c.replicas[name].Log(); !strings.Contains(log, why) {
		t.Errorf("%s does not say %q:\n%s", name, why, log)
	}
	c.start(t, name)
	c.replicas[name].Await(t, "on standby leader=")
}

// stage starts NATS and Mosquitto for a test with several coordinators, and records the announcements of these
// coordinators.
func stage(t *testing.T, servers int) (engine *brokers.NATS, broker string, heard *orders) {
	t.Helper()
	engine = brokers.NewNATS(t, servers, 0, "")
	engine.Start(t)
	broker = brokers.OpenMosquitto(t)
	return engine, broker, hearOrders(t, broker)
}

// through returns a function that starts a separate proxy to an address for each coordinator.
func through(t *testing.T, lines map[string]*brokers.Proxy, address string) func(name, text string) string {
	return func(name, text string) string {
		lines[name] = brokers.NewProxy(t, address)
		return strings.ReplaceAll(text, address, lines[name].Address)
	}
}

// TestStoppedCoordinator stops the process of the leading coordinator (SIGSTOP) until another coordinator has taken
// over, and then lets it continue.
func TestStoppedCoordinator(t *testing.T) {
	t.Parallel()
	engine, broker, heard := stage(t, 3)
	c := newCluster(t, broker, engine, withoutEnd)
	first := c.leader(t, c.names...)
	c.awaitRounds(t, first, 3)
	if err := c.replicas[first].Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.takenOver(t, first, time.Now())
	if err := c.replicas[first].Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.ends(t, first, "this replica is no longer the leader")
	c.end(t, heard, 2)
}

// TestCoordinatorCutFromEngine disconnects the leading coordinator from NATS, but leaves it connected to the broker.
func TestCoordinatorCutFromEngine(t *testing.T) {
	t.Parallel()
	engine, broker, heard := stage(t, 1)
	lines := map[string]*brokers.Proxy{}
	c := newCluster(t, broker, engine, withoutEnd, through(t, lines, engine.Nodes[0].Client))
	first := c.leader(t, c.names...)
	c.awaitRounds(t, first, 3)
	lines[first].Freeze()
	cut := time.Now()
	c.replicas[first].Wait(t, 1)
	if took := time.Since(cut); took > 20*time.Second {
		t.Errorf("the one that was cut off has ended after %v", took)
	}
	c.takenOver(t, first, cut)
	lines[first].Unfreeze()
	c.ends(t, first, "no write to the state store has succeeded for")
	c.end(t, heard, 2)
}

// TestCoordinatorCutFromBroker disconnects the leading coordinator from the broker, but leaves it connected to NATS.
func TestCoordinatorCutFromBroker(t *testing.T) {
	t.Parallel()
	engine, broker, heard := stage(t, 1)
	lines := map[string]*brokers.Proxy{}
	c := newCluster(t, broker, engine, withoutEnd, through(t, lines, strings.TrimPrefix(broker, "tcp://")),
		func(_, text string) string {
			return strings.Replace(text, "broker: {", "broker: {keep_alive: 5s, min_rate: 1MB, ", 1)
		})
	first := c.leader(t, c.names...)
	c.awaitRounds(t, first, 3)
	lines[first].Freeze()
	c.replicas[first].AwaitFor(t, 4*testkit.Patience, "no connection to the broker for")
	c.takenOver(t, first, time.Now())
	lines[first].Unfreeze()
	c.ends(t, first, "no connection to the broker for")
	c.end(t, heard, 2)
}

// TestEngineWithoutQuorum kills two of three NATS servers and restarts them later. No coordinator may lead while the
// servers are down.
func TestEngineWithoutQuorum(t *testing.T) {
	t.Parallel()
	engine, broker, heard := stage(t, 3)
	c := newCluster(t, broker, engine, withoutEnd)
	first := c.leader(t, c.names...)
	c.awaitRounds(t, first, 3)
	engine.Nodes[0].Kill()
	engine.Nodes[1].Kill()
	killed := time.Now()
	c.replicas[first].Wait(t, 1)
	if took := time.Since(killed); took > 20*time.Second {
		t.Errorf("the one that leads has ended after %v", took)
	}
	for _, name := range c.but(first) {
		if strings.Contains(c.replicas[name].Log(), "this coordinator is now the leader") {
			t.Errorf("%s leads without a quorum", name)
		}
	}
	engine.Nodes[0].Start(t)
	engine.Nodes[1].Start(t)
	c.takenOver(t, first, time.Now())
	c.ends(t, first, "this replica is no longer the leader")
	c.end(t, heard, 2)
}

// TestUpgradeCluster upgrades three coordinators from the last release without an interruption. It upgrades the standby
// replicas first and the leader last.
func TestUpgradeCluster(t *testing.T) {
	t.Parallel()
	engine, broker, heard := stage(t, 1)
	c := layOutCluster(t, broker, engine, withoutEnd)
	now := c.Programs
	c.Programs = testkit.BuildEarlier(t, root, testkit.LastRelease(root))
	c.startAll(t)
	leads := c.leader(t, c.names...)
	c.awaitRounds(t, leads, 2)
	c.Programs = now
	const standsBy = "by leader=" // text that the log messages of both versions contain
	for _, name := range append(c.but(leads), leads) {
		for _, other := range c.but(name, leads) {
			c.replicas[other].Await(t, standsBy)
		}
		c.replicas[name].Stop(t, syscall.SIGTERM, 0)
		if name == leads {
			c.takenOver(t, name, time.Now())
		}
		c.start(t, name)
		c.replicas[name].Await(t, standsBy)
	}
	c.end(t, heard, 2)
}
