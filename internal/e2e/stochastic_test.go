package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// stochastic is a task with a bilinear network as in equation (40) of the paper on second-order guarantees, with
// mini-batches, gradient noise and stragglers. The number of local steps does not depend on the clock.
const stochastic = `{name: saddle, features: [a, b], target: y, standardize: false, step_size: {constant: 0.05}, batch_size: 5,
  response: {probability: 0.5}, gradient_noise: {law: laplace, variance: 0.01}, steps: {budget: 10s, min: 5, max: 5},
  model: {kind: mlp, hidden: [3], activation: identity, risk: logistic, bias: false, ridge: 0.1}}`

// TestStochasticGradients checks that all randomness comes from the seed. The model must be bit-for-bit equal to the
// result of plainLoop, a simple implementation.
func TestStochasticGradients(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	// ids are in the order in which the coordinator aggregates updates
	ids, data := []string{"one", "three", "two"}, map[string]string{}
	var list strings.Builder
	for i, id := range ids {
		data[id] = classes(30 + 7*i)
		list.WriteString(f.AddAgent(t, id, data[id]))
	}
	f.ConfigureCoordinator(t, stochastic, list.String(), threeOfThree)
	lead := f.Daemon(t, "coordinator", "coordinator")
	agents := f.Agents(t, ids)
	lead.Await(t, "run finished version=3")
	testkit.StopAll(t, append(agents, lead)...)

	out := f.Path("model.safetensors")
	programs.MustRun(t, "coordinator", "model", "export", "3", "--state-dir", f.Path("state"), "--out", out)
	file, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	tensors, _, err := store.DecodeSafetensors(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, x := range tensors {
		got = append(got, x.Data...)
	}
	cfg := coordinatorsettings.Default()
	if err := settings.Load(&cfg, "coordinator", f.Path("coordinator.yaml"), nil); err != nil {
		t.Fatal(err)
	}
	if want := wire.AppendVector(nil, plainLoop(t, &cfg, ids, data)); !slices.Equal(got, want) {
		t.Errorf("the model is\n%x, the plain loop's\n%x", got, want)
	}
}

// plainLoop computes three rounds of federated averaging over all agents in a simple loop, without agents, coordinator
// or broker.
func plainLoop(t *testing.T, cfg *coordinatorsettings.ConfigFile, ids []string, rows map[string]string) []float32 {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := task.Compile[float32](cfg.Task.ToWireTask(false))
	must(err)
	w := p.InitialParameters(cfg.Round.Seed)
	for i := range wire.RoundID(3) {
		var sent []testkit.WeightedUpdate[float32]
		next := make([]float32, len(w))
		for _, id := range ids {
			s, err := sources.ReadCSV[float32](strings.NewReader(rows[id]), id, cfg.Task.Features, cfg.Task.Target,
				sources.RowFilter{})
			must(err)
			must(p.PrepareSamples(s))
			out, err := p.RunLocalSteps(task.LocalJob[float32]{
				BaseParameters: w, Samples: s, StepWeight: 1, Steps: 5,
				Rand: task.AgentRand(cfg.Round.Seed, i+1, task.AgentRandomKey(wire.AgentID(id))),
			})
			must(err)
			sent = append(sent, testkit.WeightedUpdate[float32]{ID: wire.AgentID(id), Factor: 1,
				Values: out.UpdateVector})
		}
		must(round.ApplyStep(next, w, testkit.ReferenceAggregate(cfg.Round.Seed, 1, 3, sent...)))
		w = next
	}
	return w
}

// classes returns rows of two classes that a straight line separates.
func classes(rows int) string {
	var b strings.Builder
	b.WriteString("a,b,y\n")
	for i := range rows {
		x, z := float64(i%7)-3, float64(i%11)-5
		y := 1
		if 2*x-z < 0.5 {
			y = -1
		}
		fmt.Fprintf(&b, "%v,%v,%d\n", x, z, y)
	}
	return b.String()
}
