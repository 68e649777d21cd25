package conformance

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
)

func TestMain(m *testing.M) {
	brokers.ServeIfAsked()
	hosts.UseMemoryTempDir()
	// A sender whose connection was lost may remain blocked in the paho library until its write timeout. The timeout
	// can end long after the session was closed.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/fedmesh/fedmesh/mqtt.(*link).send"),
		goleak.IgnoreAnyFunction("github.com/fedmesh/fedmesh/mqtt.(*link).awaitAcks"))
}

// TestConformance runs the suite on each broker.
func TestConformance(t *testing.T) {
	for _, s := range append(subjects, others...) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // Each subtest starts its own broker.
			ran, lines := 0, []struct {
				name string
				test func(*testing.T, subject)
			}{
				{"connections", testConnections},
				{"presence", testPresence},
				{"killed", testKilled},
				{"late joiner", testLateJoiner},
				{"100 agents", func(t *testing.T, s subject) { testFleet(t, s, 100) }},
				{"many agents", func(t *testing.T, s subject) { testFleet(t, s, manyAgents) }},
				{"stalled", testStalled},
				{"model to 50 agents", testModelToMany},
				{"burst of uploads", testBurst},
				{"burst of uploads, broker killed", testBurstKilled},
				{"poison", testPoison},
				{"malformed", testMalformed},
			}
			for _, line := range lines {
				t.Run(line.name, func(t *testing.T) {
					ran++
					line.test(t, s)
				})
			}
			if ran == len(lines) {
				s.sawAll(t)
			}
		})
	}
}
