//go:build nightly

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestNATSLarge kills each of three NATS nodes in turn, together with an agent. The agent is restarted immediately and
// connects to another node during the leader election. This node may not have all parts of the model. Therefore the
// killed node is restarted only after the rounds have continued.
func TestNATSLarge(t *testing.T) {
	t.Parallel()
	const (
		agents, kills  = 4, 6
		hidden         = 20_000 // number of hidden units; the size of the model is 320 kB
		promised, most = 30 * time.Second, 60 * time.Second
	)
	n := brokers.NewNATS(t, 3, 0, "max_pending: 4MB")
	n.Start(t)
	f := newNodesFederation(t, n.URLs(), agents, agents, hidden, "deadline: 5m, pause: 100ms")
	f.await(3, time.Minute)
	var stood []time.Duration
	for i := range kills {
		node, id := n.Nodes[i%3], f.ids[i%agents]
		node.Kill()
		f.agents[id].Kill()
		f.startAgent(id)
		took := f.await(f.version()+2, most)
		stood = append(stood, took)
		t.Logf("kill %d, with %s: two rounds after %s, of which the promise is %s", i+1, id,
			took.Round(10*time.Millisecond), promised)
		node.Rejoin(t)
	}
	f.stop()
	f.wantAll(agents)
	f.wantCalm(agents, hidden)
	slices.Sort(stood)
	t.Logf("%d kills, %d rounds, bit-equal; two more rounds after %s (median), %s (longest)", kills, len(f.rounds.all),
		stood[kills/2].Round(10*time.Millisecond), stood[kills-1].Round(10*time.Millisecond))
	if stood[kills/2] > promised {
		t.Errorf("two rounds after %s", stood)
	}
}

// wantCalm checks that the models are bit-for-bit equal to the models of a second federation without faults.
func (f *nodesFederation) wantCalm(agents, hidden int) {
	f.t.Helper()
	got := f.models()
	calm := newNodesFederation(f.t, []string{brokers.OpenMosquitto(f.t)}, agents, agents, hidden, "deadline: 5m")
	calm.await(uint64(len(got)-1), 10*time.Minute)
	calm.stop()
	for i, want := range calm.models()[:len(got)] {
		if got[i] != want {
			f.t.Fatalf("model %d is %s, that of an undisturbed federation %s", i, got[i], want)
		}
	}
	if different := len(slices.Compact(slices.Sorted(slices.Values(got)))); different < len(got) {
		f.t.Errorf("of %d models only %d differ: they show little", len(got), different)
	}
}
