package interop

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// growing is the Python source of a trainer that receives new rows after each fit. Its prediction is the sum of its
// parameters. If it is started with a file name, it crashes in its first fit.
const growing = `
import os
import numpy as np
from fedmesh.trainer import Prediction, Trainer

class Growing(Trainer):
    count, fitted = 40, False

    def __init__(self, crashed=None):
        self.crashed = crashed

    def rows(self):
        now = self.count
        if self.fitted:
            self.count, self.fitted = now + 10, False
        return now

    def risk(self, params):
        return float((params["x"] ** 2).sum())

    def fit(self, params, job):
        if self.crashed is not None and not os.path.exists(self.crashed):
            open(self.crashed, "w").close()
            os._exit(7)
        for step in job:
            params["x"] -= np.float32(job.step_size) * params["x"]
        self.fitted = True

    def predict(self, params):
        yield Prediction(params["x"].sum(), probabilities=[0.25, 0.75])

    def parameters(self):
        return {"x": np.ones(3)}
`

// startGrowing starts device a and a coordinator whose task uses the trainer growing.
func startGrowing(t *testing.T, f *testkit.Federation, initial, keys, round string) (lead, device *testkit.Process) {
	t.Helper()
	f.ConfigureCoordinator(t,
		"{name: growing, model: {kind: external, trainer: growing, initial: "+initial+"}, batch_size: 0, "+
			"step_size: {constant: 0.5, normalize: false}, steps: {budget: 1h, min: 2, max: 2}}", keys,
		"{participants: 1, quorum: 1, deadline: 60s, gather: {target: 1, minimum: 1, within: 60s, spread: 0s}, "+
			round+"}")
	lead = f.Daemon(t, "coordinator", "coordinator")
	endsWell(t, lead)
	device = f.Daemon(t, "agentd", "a")
	endsWell(t, device)
	return lead, device
}

// TestNewRows checks that a coordinator waits for rows that have not been used yet. The trainer receives new rows only
// between rounds. The predictions of the trainer must be published.
func TestNewRows(t *testing.T) {
	t.Parallel()
	x, e := findTools(t), newExample(t, findPython(t, "numpy"), "growing:Growing")
	f := testkit.NewFederation(t, x.programs, "growing", brokers.OpenMosquitto(t))
	f.Write(t, "growing.py", growing)
	initial := e.initial(t, f)
	keys := f.AddAgent(t, "a", "unused\n0\n")
	configure(t, f, "a", e.trainers("growing", f.Dir)+fmt.Sprintf(
		"predict: {keep: 1, refresh: 1s, every: 1s, publish: site/sums, broker: {url: %q}}\n", f.Broker))
	site := mqtttest.Dial(t, mqtt.Options{URL: f.Broker, ClientID: "site", Logger: slog.New(slog.DiscardHandler)})
	site.Subscribe(mqtt.AtMostOnce, "site/sums")
	lead, device := startGrowing(t, f, initial, keys, "rounds: 3, schedule: {new_rows: {agents: 1, rows: 10}}")
	for _, rows := range []int{50, 60} {
		lead.Await(t, "next round waits until enough agents have new rows")
		device.Await(t, fmt.Sprintf("rows=%d rows_before=%d", rows, rows-10))
	}
	lead.Await(t, "run finished")
	for said := ""; !strings.Contains(said, `/3","prediction":0.046875,"probabilities":[0.25,0.75]}`); { // 3 / 4^3
		said = string(mqtttest.Received(t, site).Payload)
	}
}
