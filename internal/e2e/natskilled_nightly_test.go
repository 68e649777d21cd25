//go:build nightly

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// nodesFederation is a federation on a cluster of brokers. Each agent takes three local steps on all of its rows, so
// the model depends only on the set of updates and not on timing.
type nodesFederation struct {
	*federation
	t      *testing.T
	ids    []string
	lead   *testkit.Process
	agents map[string]*testkit.Process
	rounds rounds
}

// newNodesFederation starts a federation of n agents. The parameter round contains further keys of the configuration
// section round.
func newNodesFederation(t *testing.T, urls []string, n, quorum, hidden int, round string) *nodesFederation {
	t.Helper()
	f := &nodesFederation{federation: newFederation(t, `["`+strings.Join(urls, `", "`)+`"]`), t: t,
		agents: map[string]*testkit.Process{}}
	var list strings.Builder
	for i := range n {
		id := fmt.Sprintf("agent-%d", i)
		f.ids = append(f.ids, id)
		list.WriteString(f.AddAgent(t, id, testkit.NoisyPlane(60+3*i, i)))
	}
	f.ConfigureCoordinator(t, fmt.Sprintf(`{name: plane, features: [a, b], target: y, batch_size: 0, steps: {budget: 30s, min: 3, `+
		`max: 3}, step_size: {constant: 0.05}, model: {kind: mlp, hidden: [%d]}}`, hidden), list.String(), fmt.Sprintf(
		`{participants: %d, quorum: %d, rounds: 0, invite_every: 1s, `+
			`gather: {target: %d, minimum: %d, within: 2s, spread: 10ms}, %s}`, n, quorum, n, quorum, round),
		"policy: {keep_models: 0}")
	f.rounds.dir = f.Path("state")
	f.lead = f.Daemon(t, "coordinator", "coordinator", "--set", "broker.keep_alive=10s", "--set", "broker.min_rate=1MB")
	for _, id := range f.ids {
		f.startAgent(id)
	}
	return f
}

func (f *nodesFederation) startAgent(id string) {
	f.t.Helper()
	f.agents[id] = f.Daemon(f.t, "agentd", id, "--set", "broker.keep_alive=10s", "--set", "broker.min_rate=1MB")
}

func (f *nodesFederation) version() uint64 { return uint64(f.rounds.last().Version) }

// await waits for a model of the given version, and returns the waiting time.
func (f *nodesFederation) await(version uint64, most time.Duration) time.Duration {
	f.t.Helper()
	began := time.Now()
	testkit.UntilFor(f.t, most, fmt.Sprintf("version %d", version), func() bool {
		f.running()
		return f.version() >= version
	})
	return time.Since(began)
}

// running fails the test if a daemon has ended.
func (f *nodesFederation) running() {
	f.t.Helper()
	for _, p := range f.agents {
		f.runs(p)
	}
	f.runs(f.lead)
}

func (f *nodesFederation) runs(p *testkit.Process) {
	f.t.Helper()
	select {
	case <-p.Ended:
		f.t.Fatalf("%s has ended:\n%s", p.Name, p.Log())
	default:
	}
}

func (f *nodesFederation) stop() {
	f.t.Helper()
	for _, p := range f.agents {
		p.Stop(f.t, syscall.SIGTERM, 0)
	}
	f.lead.Stop(f.t, syscall.SIGTERM, 0)
}

// models returns the hashes of all models, ordered by version.
func (f *nodesFederation) models() (hashes []string) {
	f.t.Helper()
	out := programs.MustRun(f.t, "coordinator", "model", "list", "--state-dir", f.Path("state"))
	_, rows, _ := strings.Cut(out, "\n")
	for line := range strings.Lines(rows) {
		fields := strings.Fields(line) // the fields are version, bytes, hash, run and round
		if fields[0] != fmt.Sprint(len(hashes)) {
			f.t.Fatalf("model %d is missing: %s", len(hashes), line)
		}
		hashes = append(hashes, fields[2])
	}
	return hashes
}

// TestNATSKilled kills each of three NATS nodes in turn, ten times each, over 2,000 rounds. Each round requires the
// updates of all agents, so the rounds would stop if an agent stayed away or an update were lost.
func TestNATSKilled(t *testing.T) {
	t.Parallel()
	const (
		agents, rounds, kills = 6, 2000, 30
		promised, most        = 30 * time.Second, 60 * time.Second
	)
	n := brokers.NewNATS(t, 3, 0, "max_pending: 4MB")
	n.Start(t)
	f := newNodesFederation(t, n.URLs(), agents, agents, 8, "deadline: 5m, pause: 100ms")
	f.await(1, time.Minute)
	var stood []time.Duration
	for i := range kills {
		f.await(uint64(rounds*(i+1)/(kills+1)), 5*time.Minute)
		node := n.Nodes[i%3]
		node.Kill()
		// Wait for two rounds, because the current round may already have been complete before the kill.
		took := f.await(f.version()+2, most)
		stood = append(stood, took)
		t.Logf("kill %d: two rounds after %s, of which the promise is %s", i+1, took.Round(time.Millisecond), promised)
		node.Rejoin(t)
	}
	f.await(rounds, 5*time.Minute)
	f.stop()
	f.wantAll(agents)
	f.wantCalm(agents, 8)
	slices.Sort(stood)
	t.Logf("%d kills, %d rounds, bit-equal; two more rounds after %s (median), %s (longest)", kills, len(f.rounds.all),
		stood[kills/2].Round(10*time.Millisecond), stood[kills-1].Round(10*time.Millisecond))
}

// at returns an agent that is connected to the given node, or "" if there is none.
func (f *nodesFederation) at(has func(t testing.TB, client string) bool) string {
	f.t.Helper()
	for _, id := range f.ids {
		if has(f.t, "e2e-"+id) {
			return id
		}
	}
	return ""
}

// TestNATSStopped freezes each node (SIGSTOP) until the clients have moved to other nodes. When the node continues, it
// still has the old connections and wills of these clients. Every round requires all agents. Therefore the rounds would
// stop if the node closed the clients' newer connections or published an outdated will.
func TestNATSStopped(t *testing.T) {
	t.Parallel()
	const agents = 6
	n := brokers.NewNATS(t, 3, 0, "max_pending: 4MB")
	n.Start(t)
	f := newNodesFederation(t, n.URLs(), agents, agents, 8, "deadline: 5m, pause: 100ms")
	f.await(10, time.Minute)
	for i, node := range n.Nodes {
		clients := 0
		for _, id := range append(f.ids, "coordinator") {
			if node.HasClient(t, "e2e-"+id) {
				clients++
			}
		}
		node.Signal(t, syscall.SIGSTOP)
		stood := f.await(f.version()+2, 2*time.Minute)
		node.Signal(t, syscall.SIGCONT)
		after := f.await(f.version()+50, time.Minute)
		t.Logf("node %d with %d clients froze: two rounds after %s; it went on: 50 rounds in %s", i+1, clients,
			stood.Round(10*time.Millisecond), after.Round(10*time.Millisecond))
	}
	f.stop()
	f.wantAll(agents)
}

// TestNATSNoWill kills a node together with an agent that is connected to it, so that no will message is published. The
// rounds of the other agents must continue after a deadline. After its restart, the agent must be included again.
func TestNATSNoWill(t *testing.T) {
	t.Parallel()
	const agents, most = 6, 2 * time.Minute
	n := brokers.NewNATS(t, 3, 0, "max_pending: 4MB")
	n.Start(t)
	f := newNodesFederation(t, n.URLs(), agents, agents-1, 8, "deadline: 15s, pause: 100ms")
	f.await(10, time.Minute)
	for _, node := range n.Nodes {
		lost := f.at(node.HasClient)
		if lost == "" {
			continue // the clients are distributed over the nodes at random, so try again
		}
		gone := f.agents[lost]
		delete(f.agents, lost)
		gone.Kill()
		node.Kill()
		without := f.await(f.version()+5, most)
		f.startAgent(lost)
		back := f.awaitAll(agents, most)
		t.Logf("%s and its node were killed: five rounds without it after %s; a round with it %s after its start",
			lost, without.Round(10*time.Millisecond), back.Round(10*time.Millisecond))
		node.Rejoin(t)
	}
	f.stop()
}

// awaitAll waits for a round that includes all agents, and returns the waiting time.
func (f *nodesFederation) awaitAll(agents int, most time.Duration) time.Duration {
	f.t.Helper()
	began := time.Now()
	for f.rounds.last().AcceptedUpdates < agents {
		f.await(f.version()+1, most-time.Since(began))
	}
	return time.Since(began)
}

// wantAll checks that the history contains every round once, that no round was abandoned, and that each round has the
// updates of all agents.
func (f *nodesFederation) wantAll(agents int) {
	f.t.Helper()
	f.rounds.last()
	for i, r := range f.rounds.all {
		if uint64(r.Round) != uint64(i+1) || r.Outcome == "abandoned" || r.AcceptedUpdates != agents {
			f.t.Errorf("line %d of the history: %+v", i+1, r)
		}
	}
}
