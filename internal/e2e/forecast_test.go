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

// TestForecasts checks that an agent publishes a forecast for each new row on the broker of its site. The agent must
// continue to do so after the coordinator has stopped, and after a restart while the federation's broker is
// unreachable.
func TestForecasts(t *testing.T) {
	t.Parallel()
	m, site := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf)), brokers.OpenMosquitto(t)
	m.Start(t)
	f := newFederation(t, "tcp://"+m.Address)
	f.lead(t, f.AddAgent(t, "one", plane(60)),
		`{participants: 1, quorum: 1, rounds: 2, deadline: 20s, `+
			`gather: {target: 1, minimum: 1, within: 20s, spread: 10ms}}`)
	lead := f.Daemon(t, "coordinator", "coordinator")
	sub := mqtttest.Dial(t, mqtt.Options{URL: site, ClientID: "display"})
	sub.Subscribe(mqtt.AtMostOnce, "site/forecast")
	predict := []string{"--set", "predict.keep=1", "--set", "predict.refresh=0s", "--set", "predict.every=1s", "--set",
		"predict.publish=site/forecast", "--set", "predict.broker.url=" + site}
	one := f.Daemon(t, "agentd", "one", predict...)
	lead.Await(t, "run finished version=2")
	one.Await(t, "version=2 task=plane pinned=false")
	lead.Stop(t, syscall.SIGTERM, 0)
	mqtttest.Received(t, sub) // skip the forecast for the newest of the existing rows
	grows := func(from, to int) {
		t.Helper()
		put(t, f.Path("one.csv"), os.O_APPEND, strings.TrimPrefix(plane(to), plane(from)))
		for k := from; k < to; k++ {
			wantForecast(t, mqtttest.Received(t, sub).Payload, k)
		}
	}
	grows(60, 70)
	one.Stop(t, syscall.SIGTERM, 0)
	m.Kill()
	one = f.Daemon(t, "agentd", "one", predict...)
	one.Await(t, "version=2 task=plane pinned=false")
	wantForecast(t, mqtttest.Received(t, sub).Payload, 69)
	grows(70, 75)
	one.Stop(t, syscall.SIGTERM, 0)
}

// wantForecast checks the forecast of model 2 for a row of the plane.
func wantForecast(t *testing.T, payload []byte, row int) {
	t.Helper()
	var got struct {
		Model                string
		Prediction, Residual float64
	}
	if err := json.Unmarshal(payload, &got); err != nil {
		t.Fatal(err)
	}
	label := 2*(float64(row%7)-3) - (float64(row%11) - 5) + 1
	if math.Abs(got.Prediction+got.Residual-label) > 1e-4 || !strings.HasSuffix(got.Model, "/2") {
		t.Errorf("row %d: %s, want the label %v", row, payload, label)
	}
}
