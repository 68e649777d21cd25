package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestUnreachableBroker checks that a program logs an unreachable broker in one line, and connects as soon as the
// broker is reachable.
func TestUnreachableBroker(t *testing.T) {
	t.Parallel()
	broker := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf))
	address := broker.Address
	f := newFederation(t, "tcp://"+address)
	f.lead(t, f.AddAgent(t, "one", plane(60)), `{participants: 1, quorum: 1, gather: {minimum: 1}}`)
	daemons := []*testkit.Process{f.Daemon(t, "agentd", "one"), f.Daemon(t, "coordinator", "coordinator")}
	for _, p := range daemons {
		p.Await(t, "cannot reach the broker at tcp://"+address+": connection refused; retry in ")
	}
	broker.Start(t)
	for _, p := range daemons {
		p.Await(t, "connected to the broker at tcp://"+address)
		if n := strings.Count(p.Log(), "cannot reach"); n != 1 {
			t.Errorf("%s says it %d times", p.Name, n)
		}
		p.Stop(t, syscall.SIGTERM, 0)
	}
}

// TestStopsWithoutBroker checks that the programs stop quickly on request, whatever the state of the broker.
func TestStopsWithoutBroker(t *testing.T) {
	t.Parallel()
	f := newFederation(t, "tcp://"+brokers.FreeAddress(t))
	f.lead(t, f.AddAgent(t, "one", plane(60)), `{participants: 1, quorum: 1, gather: {minimum: 1}}`)
	for program, name := range map[string]string{"agentd": "one", "coordinator": "coordinator"} {
		p := f.Daemon(t, program, name)
		p.Await(t, "cannot reach the broker")
		p.Stop(t, syscall.SIGINT, 0)
	}
}
