package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestSlowLink trains over links of 20 kB/s with default settings, and over a link of 5 kB/s with adapted settings. No
// program may lose its connection. Few bytes may be sent twice, although the transfer of a model takes longer than the
// validity of a transfer credit.
func TestSlowLink(t *testing.T) {
	for _, tt := range []struct {
		rate, hidden int
		settings     []string
	}{
		{20_000, 330, nil}, // 440 kB: 22 s down and 22 s up
		{5000, 150, []string{"broker.min_rate=5kB", "broker.keep_alive=105s"}}, // 93 kB: 19 s down, 19 s up, two chunks
	} {
		t.Run(fmt.Sprint(tt.rate), func(t *testing.T) {
			t.Parallel()
			f := newFederation(t, brokers.OpenMosquitto(t))
			list := f.AddAgent(t, "one", plane(20))
			bytes := 4 * float64(tt.hidden*tt.hidden+5*tt.hidden+1)
			f.ConfigureCoordinator(t,
				fmt.Sprintf("{name: plane, features: [a, b], target: y, standardize: false, model: {kind: mlp, "+
					"hidden: [%d, %d]}, steps: {budget: 100ms, min: 1, max: 1}}", tt.hidden, tt.hidden),
				list,
				`{participants: 1, quorum: 1, rounds: 1, deadline: 5m, gather: {target: 1, minimum: 1, within: 20s, spread: 10ms}}`)
			lead := f.Daemon(t, "coordinator", "coordinator")
			slow := "tcp://" + brokers.NewSlowProxy(t, strings.TrimPrefix(f.Broker, "tcp://"), tt.rate)
			set := []string{"--set", "metrics.listen=127.0.0.1:0", "--set", "broker.url=" + slow}
			for _, s := range tt.settings {
				set = append(set, "--set", s)
			}
			one := f.Daemon(t, "agentd", "one", set...)
			url := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(one.Await(t, "serving metrics"))[1]
			lead.AwaitFor(t, 2*testkit.Patience, "run finished version=1")
			for direction, kind := range map[string]string{"received": "blob", "sent": "update"} {
				n := testkit.ScrapeMetric(t, url, fmt.Sprintf(`agentd_mqtt_payload_bytes_total{direction=%q,kind=%q}`,
					direction, kind))
				if n < bytes || n > 1.05*bytes+5000 {
					t.Errorf("%v bytes were %s for %v", n, direction, bytes)
				}
			}
			if log := one.Log(); strings.Contains(log, "lost the connection to the broker") ||
				strings.Count(log, "connected to the broker") != 1 {
				t.Errorf("the agent lost its link:\n%s", log)
			}
			one.Stop(t, syscall.SIGTERM, 0)
			lead.Stop(t, syscall.SIGTERM, 0)
		})
	}
}
