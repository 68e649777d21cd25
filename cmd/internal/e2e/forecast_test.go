package e2e

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestForecasts has an agent publish predictions on the broker of its site: for each row that comes to its file, after
// the coordinator is gone.
func TestForecasts(t *testing.T) {
	f, site := newFederation(t, brokers.OpenMosquitto(t)), brokers.OpenMosquitto(t)
	f.lead(t, f.AddAgent(t, "one", plane(60)),
		`{participants: 1, quorum: 1, rounds: 2, deadline: 20s, `+
			`gather: {target: 1, minimum: 1, within: 20s, spread: 10ms}}`)
	lead := f.Daemon(t, "coordinator", "coordinator")
	sub := mqtttest.Dial(t, mqtt.Options{URL: site, ClientID: "display"})
	sub.Subscribe(mqtt.AtMostOnce, "site/forecast")
	one := f.Daemon(t, "agentd", "one", "--set", "predict.keep=1", "--set", "predict.refresh=0s",
		"--set", "predict.every=1s", "--set", "predict.publish=site/forecast", "--set", "predict.broker.url="+site)
	lead.Await(t, "run finished version=2")
	one.Await(t, "version=2 task=plane pinned=false")
	lead.Stop(t, syscall.SIGTERM, 0)
	mqtttest.Received(t, sub) // of the newest row that is there
	put(t, f.Path("one.csv"), os.O_APPEND, strings.TrimPrefix(plane(70), plane(60)))
	for k := 60; k < 70; k++ {
		var got struct {
			Model                string
			Prediction, Residual float64
		}
		m := mqtttest.Received(t, sub)
		if err := json.Unmarshal(m.Payload, &got); err != nil {
			t.Fatal(err)
		}
		label := 2*(float64(k%7)-3) - (float64(k%11) - 5) + 1
		if math.Abs(got.Prediction+got.Residual-label) > 1e-4 || !strings.HasSuffix(got.Model, "/2") {
			t.Errorf("row %d: %s, want the label %v", k, m.Payload, label)
		}
	}
	one.Stop(t, syscall.SIGTERM, 0)
}
