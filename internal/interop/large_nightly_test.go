//go:build nightly

package interop

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/store"
)

// largeElements is the number of float32 values in 100 MB.
const largeElements = 25_000_000

// adding is the Python source of a trainer that adds 1 to each parameter in each local step.
const adding = `
import numpy as np
from fedmesh.trainer import Trainer

class Adding(Trainer):
    def rows(self):
        return 10

    def risk(self, params):
        return 1.0

    def fit(self, params, job):
        for step in job:
            params["w"] += np.float32(job.step_size)

    def parameters(self):
        return {"w": np.zeros(25_000_000, np.float32)}
`

// mostResident is the limit of each daemon's resident memory, as a multiple of the model size. The measured values are
// 5.1 for agentd and 6.2 for the coordinator.
var mostResident = map[string]float64{"agentd": 6.5, "coordinator": 8}

// TestLarge trains a model of 100 MB on two devices whose trainer adds a constant. Each round must add exactly this
// constant to each parameter, and the resident memory of the daemons must stay below a limit.
func TestLarge(t *testing.T) {
	x, e := findTools(t), newExample(t, findPython(t, "numpy"), "adding:Adding")
	f := testkit.NewFederation(t, x.programs, "large", brokers.OpenMosquitto(t))
	f.Write(t, "adding.py", adding)
	initial, keys := e.initial(t, f), ""
	const devices, rounds, within = 2, 2, 4 * time.Minute
	for i := range devices {
		id := fmt.Sprint("d", i)
		keys += f.AddAgent(t, id, "unused\n0\n")
		configure(t, f, id, e.trainers("adding", f.Dir)+"limits: {max_model: 116MB}\n")
	}
	f.ConfigureCoordinator(t,
		"{name: adding, model: {kind: external, trainer: adding, initial: "+initial+"}, batch_size: 0, "+
			"step_size: {constant: 0.5, normalize: false}, steps: {budget: 1h, min: 2, max: 2}}", keys,
		fmt.Sprintf("{participants: %d, quorum: %d, rounds: %d, deadline: %v, gather: {target: %d, minimum: %d, "+
			"within: %v, spread: 0s}}", devices, devices, rounds, within, devices, devices, within))
	began := time.Now()
	all := map[string][]*testkit.Process{"coordinator": {f.Daemon(t, "coordinator", "coordinator")}}
	lead := all["coordinator"][0]
	for i := range devices {
		all["agentd"] = append(all["agentd"], f.Daemon(t, "agentd", fmt.Sprint("d", i)))
		endsWell(t, all["agentd"][i])
	}
	lead.AwaitFor(t, within, "run finished")
	t.Logf("%d rounds of 100 MB with %d devices in %v", rounds, devices, time.Since(began).Round(time.Second))
	for program, processes := range all {
		for _, p := range processes {
			models := p.Memory(t, "VmHWM") / (4 * largeElements)
			t.Logf("%s had %.1f models in memory", program, models)
			if models > mostResident[program] {
				t.Errorf("%s had %.1f models in memory, want %v at most", program, models, mostResident[program])
			}
		}
	}
	lead.Stop(t, syscall.SIGTERM, 0)
	export := f.Path("exported.safetensors")
	x.programs.MustRun(t, "coordinator", "model", "export", "--out", export, "--state-dir", f.Path("state"))
	file, err := os.ReadFile(export)
	if err != nil {
		t.Fatal(err)
	}
	tensors, _, err := store.DecodeSafetensors(file)
	if err != nil || len(tensors) != 1 || len(tensors[0].Data) != 4*largeElements {
		t.Fatalf("%d tensors, error %v", len(tensors), err)
	}
	for at := 0; at < len(tensors[0].Data); at += 4 {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(tensors[0].Data[at:])); v != rounds {
			t.Fatalf("parameter %d is %v, want %d", at/4, v, rounds)
		}
	}
}
