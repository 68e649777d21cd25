package world

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// unequal contains the methods that the simulator cannot reproduce, each with the reason.
var unequal = map[Method]string{
	"over-selection":            "which of the drawn agents count is a matter of their speed",
	"some answer, others leave": "who answers is a matter of each agent's own chance",
	"feddec, endless":           "at which step an agent is asked is a matter of time",
}

// TestSimulatorIsTheWorld compares every model of a fault-free federation with the simulator's model, bit for bit, for
// each method and kind of model.
func TestSimulatorIsTheWorld(t *testing.T) {
	all := append(slices.Sorted(maps.Keys(methods)), slices.Sorted(maps.Keys(undrawnMethods))...)
	for _, method := range append(all, "") {
		if unequal[method] != "" {
			continue
		}
		t.Run(string(method), func(t *testing.T) {
			t.Parallel()
			equal(t, Plan{Seed: 11, Method: method, Agents: 6, Participants: 5, Quorum: 5, Rounds: 6})
		})
	}
	t.Run("in the order of the fold", func(t *testing.T) {
		equal(t, Plan{Seed: 11, Method: "gradients, all rows", Opposed: true, Agents: 4, Participants: 4, Quorum: 4,
			Rounds: 6})
	})
}

// TestEveryNameHasAMethod checks that each optimiser, rule, codec, kind of model and loss is used by at least one of
// the compared methods.
func TestEveryNameHasAMethod(t *testing.T) {
	tried := map[string]bool{}
	for _, of := range []map[Method]func(*round.Config, *wire.Task){methods, undrawnMethods, {"": nil}} {
		for method := range of {
			r, task := (&Plan{Method: method}).configure()
			for _, name := range []string{"optimiser " + r.ServerOptimizer.Name, "rule " + r.Aggregation.Rule,
				"codec " + cmp.Or(task.Training.UpdateCodec, spec.CodecRaw).Name(),
				"loss " + string(task.Model.Risk),
				"kind " + string(cmp.Or(task.Model.Kind,
					spec.ModelKindFromLayers(len(task.Model.HiddenUnits), task.Model.Risk)))} {
				tried[name] = true
			}
		}
	}
	var wanted []string
	for _, name := range optimizer.Names() {
		wanted = append(wanted, "optimiser "+name)
	}
	for _, name := range rule.Names() {
		wanted = append(wanted, "rule "+name)
	}
	for _, name := range spec.CodecNames() {
		wanted = append(wanted, "codec "+name)
	}
	for _, kind := range spec.ModelKinds() {
		wanted = append(wanted, "kind "+string(kind))
	}
	for _, loss := range spec.DeviceLossKinds() {
		wanted = append(wanted, "loss "+string(loss))
	}
	for _, name := range wanted {
		if !tried[name] {
			t.Errorf("no method has the %s: add one to undrawnMethods", name)
		}
	}
}

// TestTargetsAreValid checks that the targets in the agents' data are valid for each loss.
func TestTargetsAreValid(t *testing.T) {
	for _, loss := range spec.LossKinds() {
		a := learner.Architecture{Inputs: 3, Outputs: 1, Risk: loss, HuberDelta: 1}
		if loss == spec.LossSoftmax {
			a.Outputs = 3
		}
		different := map[float32]bool{}
		for seed := range uint64(6) {
			for _, opposed := range []bool{false, true} {
				s, err := rows{seed, opposed, a.LabelSet()}.load(nil, "")
				if err != nil {
					t.Fatal(err)
				}
				for _, y := range s.All().Y {
					if different[y] = true; !a.LabelSet().Contains(float64(y)) {
						t.Fatalf("%s: target %v is not one of %v", loss, y, a.LabelSet())
					}
				}
			}
		}
		if len(different) < 2 || a.Outputs > 1 && len(different) < a.Outputs {
			t.Errorf("%s: the only targets are %v", loss, different)
		}
	}
}

// equal checks that the models of one federation equal the models of the simulator.
func equal(t *testing.T, p Plan) {
	t.Helper()
	seen := &witness{}
	w, r := run(p, Bugs{Configure: seen.watch}, nil)
	if r.Failure != "" {
		t.Fatal(r.Failure)
	}
	if len(seen.models) != p.Rounds {
		t.Fatalf("%d models after %d rounds", len(seen.models), p.Rounds)
	}
	for _, m := range seen.models {
		if want := simulated(t, p, int(m.Version)); m.Hash != want {
			t.Fatalf("model %d of the federation is %x, of the simulator %x", m.Version, m.Hash[:4], want[:4])
		}
	}
	if w.check.keeping() && r.Residuals < p.Rounds {
		t.Errorf("%d residuals were looked at in %d rounds", r.Residuals, p.Rounds)
	}
	if p.personal() {
		equalOwn(t, p, w)
	}
}

// equalOwn checks that the agents' personal models at the end of a run equal the simulator's personal models. equalOwn
// compares the risks of the models.
func equalOwn(t *testing.T, p Plan, w *World) {
	t.Helper()
	e, in := experiment(t, p)
	e.Rounds = p.Rounds
	r, err := sim.RunInstances(t.Context(), e, func(int) (sim.Instance[float32], error) { return in, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, tk := p.configure()
	problem, err := task.Compile[float32](tk)
	if err != nil {
		t.Fatal(err)
	}
	model := make([]float32, len(r.Final[0]))
	for j, v := range r.Final[0] {
		model[j] = float32(v)
	}
	shared, pool := problem.SharedParameters(model), evaluation.ResultPool{}
	for k := range p.Agents {
		own := problem.InitialOwnParameters(p.Seed)
		if o, ok := ownOf(w.agent(agentID(k)).disk.file); ok {
			if err := wire.DecodeVector(own, o.after); err != nil {
				t.Fatal(err)
			}
		}
		tally := problem.Model.SumScores(problem.PredictionParameters(shared, own), in.Problem.HeldOut[k])
		pool.Add(agentID(k), evaluation.FromScoreSums(0, 0, tally))
	}
	if got, want := pool.Summarize(1).Risk, r.At("own_risk", p.Rounds).Mean; got != want {
		t.Errorf("the risk of the agents' own models is %v, in the simulator %v", got, want)
	}
}

// witness records the models that a coordinator computes.
type witness struct {
	observe.Observer
	models []aggregation.ModelReady
}

// watch makes the coordinator report its models to the witness. It also removes the time limit for snapshots of
// neighbours, so that each step waits for all neighbours as in the simulator.
func (w *witness) watch(cfg *coordinator.Config) {
	w.Observer, cfg.Observer = cfg.Observer, w
	cfg.Task.Mixing.SnapshotWaitMillis = 0
}

// Observe implements observe.Observer.
func (w *witness) Observe(f observe.Event) {
	if m, ok := f.(aggregation.ModelReady); ok {
		w.models = append(w.models, m)
	}
	w.Observer.Observe(f)
}

// simulated returns the hash of the model that the simulator computes after the given number of rounds.
func simulated(t *testing.T, p Plan, rounds int) wire.Digest {
	t.Helper()
	e, in := experiment(t, p)
	e.Rounds = rounds
	if e.Algorithm == spec.FedDec {
		e.Rounds = rounds*e.Mixing.ServerEvery + 1
	}
	r, err := sim.RunInstances(t.Context(), e, func(int) (sim.Instance[float32], error) { return in, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	model := make([]float32, len(r.Final[0]))
	for j, v := range r.Final[0] {
		model[j] = float32(v)
	}
	_, tk := p.configure()
	problem, err := task.Compile[float32](tk)
	if err != nil {
		t.Fatal(err)
	}
	return wire.BlobDigest(wire.AppendVector(nil, problem.SharedParameters(model)))
}

// experiment returns the simulator's experiment and instance for a plan.
func experiment(t *testing.T, p Plan) (sim.Experiment, sim.Instance[float32]) {
	t.Helper()
	r, tk := p.configure()
	e := sim.Default()
	e.Seed, e.Runs, e.Precision = r.Seed, 1, sim.Float32
	e.Algorithm, e.Participants.Count, e.Sampling, e.Weighting = r.Algorithm, r.Participants, r.Sampling,
		r.WeightPlacement
	e.Aggregation, e.ServerOptimizer = r.Aggregation, r.ServerOptimizer
	training := &tk.Training
	e.Exchange, e.Proximal = training.ExchangeKind, training.Proximal
	if training.GradientNoise.Law != "" {
		e.GradientNoise = training.GradientNoise
	}
	e.BatchSize = sim.Each(float64(training.BatchSize))
	if training.UpdateCodec != "" {
		e.Codec = training.UpdateCodec
	}
	if training.LocalStepProbability > 0 {
		e.Response.Probability = sim.Each(training.LocalStepProbability)
	}
	e.StepSize = spec.StepSize{Constant: training.StepSize, NormalizesStepSize: training.NormalizesStepSize}
	if training.StepSize == 0 {
		e.StepSize.Constant, e.StepSize.IsDiminishing = sim.Default().StepSize.Constant, true
		e.StepSize.StrongConvexity, e.StepSize.DecayOffset = training.StrongConvexity, training.StepSizeDecayOffset
	}
	e.Data.Model.FrozenTensors = tk.Model.FrozenTensors
	if e.Personal.Layers = tk.Personal.PersonalTensors; tk.Personal.UsesDitto {
		e.Personal.Method, e.Personal.DittoLambda = spec.PersonalDitto, tk.Personal.DittoLambda
	}
	problem, err := task.Compile[float32](tk)
	if err != nil {
		t.Fatal(err)
	}
	var held []*learner.Samples[float32]
	var weights, steps []float64
	for k := range p.Agents {
		s, err := p.rowsOf(k).load(nil, "")
		if err != nil {
			t.Fatal(err)
		}
		n, _ := problem.StepCountPolicy().LocalStepCount(stepTime(k))
		held, weights, steps = append(held, s), append(weights, float64(s.Len())), append(steps, float64(n))
	}
	var in sim.Instance[float32]
	if in.Problem, err = data.NewHeld(problem.Model.Architecture(), held); err != nil {
		t.Fatal(err)
	}
	if p.personal() {
		in.Problem.HeldOut = held // personal models are compared by their risk on the held-out rows
	}
	for k := range p.Agents {
		in.Problem.Labels = append(in.Problem.Labels, string(agentID(k)))
	}
	if r.AgentWeightRule == spec.WeightsSamples {
		in.Problem.Weights = weights
	}
	if r.Algorithm == spec.FedDec {
		h := int(training.MaxLocalSteps)
		e.Mixing.ServerEvery, e.Mixing.FirstBlock, e.Mixing.Every = h, h, int(tk.Mixing.IntervalSteps)
		e.Mixing.Gradients, e.Mixing.Codec = sim.Each(steps...), tk.Mixing.SnapshotCodec
		e.Mixing.Clip = r.MixingClipBound
		if in.Mixing, err = graph.NewMixingMatrix(graph.RingGraph(p.Agents), spec.EdgeWeightsMetropolis); err != nil {
			t.Fatal(err)
		}
	} else if training.MaxLocalSteps > 1 {
		e.LocalSteps = sim.Each(steps...)
	}
	return e, in
}
