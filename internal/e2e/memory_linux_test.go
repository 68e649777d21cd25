package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestResidentMemory measures the memory of an agent under the memory limit that its service has on a gateway. It
// measures three states: idle, after rounds with a model of 4 MB, and while the agent also predicts. `make size` prints
// the results.
func TestResidentMemory(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "32MiB")
	m := newMemory(t)
	m.start(t, "agentd", 40e6)
	m.lead(t)
	m.report(t, "after three rounds with a 4 MB model")
	m.agent.Stop(t, syscall.SIGTERM, 0)

	m = newMemory(t)
	sub := mqtttest.Dial(t, mqtt.Options{URL: m.Broker, ClientID: "display"})
	sub.Subscribe(mqtt.AtMostOnce, "site/forecast")
	m.start(t, "agentd that predicts", 64e6, "--set", "predict.keep=2", "--set", "predict.refresh=0s", "--set",
		"predict.every=1s", "--set", "predict.publish=site/forecast", "--set", "predict.broker.url="+m.Broker)
	m.lead(t)
	m.agent.Await(t, "version=3 task=large")
	m.report(t, "after three rounds with a 4 MB model")
	mqtttest.Received(t, sub) // skip the forecast for the newest of the existing rows
	put(t, m.Path("one.csv"), os.O_APPEND, strings.TrimPrefix(plane(160), plane(60)))
	for range 100 {
		mqtttest.Received(t, sub)
	}
	m.report(t, "after a hundred forecasts with it")
	m.agent.Stop(t, syscall.SIGTERM, 0)
}

// memory is a federation with an agent whose memory is measured.
type memory struct {
	*federation
	agent *testkit.Process
	name  string
	limit float64 // limit of anonymous memory in bytes; the kernel cannot reclaim anonymous memory
}

func newMemory(t *testing.T) *memory {
	m := &memory{federation: newFederation(t, brokers.OpenMosquitto(t))}
	m.ConfigureCoordinator(t,
		"{name: large, features: [a, b], target: y, model: {kind: mlp, hidden: [1000, 1000]}, steps: {budget: "+
			"1s, min: 1, max: 3}}",
		m.AddAgent(t, "one", plane(60)),
		`{participants: 1, quorum: 1, rounds: 3, deadline: 50s, gather: {target: 1, minimum: 1, within: 20s, spread: 10ms}}`)
	return m
}

func (m *memory) start(t *testing.T, name string, limit float64, more ...string) {
	m.agent, m.name, m.limit = m.Daemon(t, "agentd", "one", more...), name, limit
	m.agent.Await(t, "connected")
	m.report(t, "idle")
}

// lead runs the coordinator until all rounds have ended.
func (m *memory) lead(t *testing.T) {
	lead := m.Daemon(t, "coordinator", "coordinator")
	lead.Await(t, "run finished version=3")
	lead.Stop(t, syscall.SIGTERM, 0)
}

func (m *memory) report(t *testing.T, when string) {
	t.Helper()
	total, anonymous, peak := m.agent.Memory(t, "VmRSS"), m.agent.Memory(t, "RssAnon"), m.agent.Memory(t, "VmHWM")
	t.Logf("%-20s %-38s %5.1f MB resident, %5.1f MB of it not on disk; never above %5.1f MB", m.name, when, total/1e6,
		anonymous/1e6, peak/1e6)
	if anonymous > m.limit {
		t.Errorf("%s %s holds %.1f MB that are not on disk, want at most %.0f MB", m.name, when, anonymous/1e6,
			m.limit/1e6)
	}
}
