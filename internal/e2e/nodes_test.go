package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestKilledNode runs a federation on two Mosquitto brokers that are connected by a bridge, and kills the broker that
// the coordinator uses. Rounds with all agents must continue on the other broker.
func TestKilledNode(t *testing.T) {
	t.Parallel()
	first := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf))
	first.Start(t)
	// Log only notices, because the bridge warns about the killed broker.
	second := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf+"log_type notice\nlog_type information\n"+
		"connection first\naddress "+first.Address+"\ntopic # both 1\nnotifications false\n"))
	second.Start(t)
	nodes := map[string]*brokers.Mosquitto{"tcp://" + first.Address: first, "tcp://" + second.Address: second}

	f := newFederation(t, fmt.Sprintf(`["tcp://%s", "tcp://%s"]`, first.Address, second.Address))
	ids := []string{"one", "two", "three"}
	list := f.AddAgents(t, plane(60), ids...)
	f.lead(t, list, strings.Replace(threeOfThree, "rounds: 3, deadline: 20s",
		"rounds: 0, pause: 100ms, deadline: 60s", 1))
	lead := f.Daemon(t, "coordinator", "coordinator")
	processes := []*testkit.Process{lead}
	processes = append(processes, f.Agents(t, ids)...)
	_, node, _ := strings.Cut(lead.Await(t, "connected to the broker at "), "connected to the broker at ")
	other := "tcp://" + first.Address
	if node == other {
		other = "tcp://" + second.Address
	}
	if nodes[node] == nil {
		t.Fatalf("the coordinator is at %q, which is no node", node)
	}
	lead.Await(t, "round closed round=3 ")
	nodes[node].Kill()
	lead.Await(t, "lost the connection to the broker at "+node)
	lead.Await(t, "connected to the broker at "+other)
	lead.Await(t, "round closed round=6 kind=training accepted=3 ")
	if log := lead.Log(); strings.Contains(log, "round abandoned") {
		t.Errorf("a round was abandoned:\n%s", log)
	}
	testkit.StopAll(t, processes...)
}
