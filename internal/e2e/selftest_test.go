package e2e

import (
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestSelfTest runs both programs on brokers that forward, discard or reject the largest messages. The duration of each
// case depends on the keepalive interval. The interval is short if the test has to wait for a timeout, and otherwise
// long.
func TestSelfTest(t *testing.T) {
	for name, c := range map[string]struct{ line, keepAlive, want string }{
		"good": {"", "10s", "DEBUG broker accepts the largest messages"},
		"swallows": {"message_size_limit 20000", "2s",
			"result=swallowed topic="},
		"disconnects": {"max_packet_size 20000", "10s", "result=disconnected topic="},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFederation(t, brokers.OpenMosquitto(t, c.line))
			f.lead(t, f.AddAgent(t, "one", plane(60)), `{participants: 1, quorum: 1, gather: {minimum: 1}}`)
			var daemons []*testkit.Process
			for program, file := range map[string]string{"agentd": "one", "coordinator": "coordinator"} {
				daemons = append(daemons, f.Daemon(t, program, file, "--set", "broker.keep_alive="+c.keepAlive, "--set",
					"broker.min_rate=1MB", "--set", "log.level=debug"))
			}
			for _, p := range daemons {
				p.Await(t, c.want)
				p.Stop(t, syscall.SIGTERM, 0)
			}
		})
	}
}
