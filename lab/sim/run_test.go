package sim_test

import (
	"context"
	"math"
	"reflect"
	"runtime"
	"testing"

	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/lab/theory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
)

func run(t *testing.T, e sim.Experiment) *sim.Result {
	t.Helper()
	r, err := sim.Run(context.Background(), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLabAgreesWithTheory compares the steady state of Lab #1 of the lecture with the exact recursion for the second
// moment of the error.
func TestLabAgreesWithTheory(t *testing.T) {
	e := sim.Default()
	e.Agents, e.Participants.Count, e.LocalSteps, e.Runs, e.Rounds, e.Record = 20, 5, sim.Each(4), 30, 1500, 5
	e.Data.Inputs, e.Data.Spread, e.Data.Fresh, e.StepSize.Constant = 4, 0.1, true, 0.02
	got := run(t, e).Steady("msd", 700)
	want := theory.Lab{
		Inputs: 4, RegressorVar: 1, NoiseVar: 0.1, Spread: 0.1, StepSize: 0.02, Agents: 20, Participants: 5,
		LocalSteps: 4, BatchSize: 1,
	}.MSD()
	if math.Abs(got.Mean-want) > 2*got.Half || got.Half > 0.2*want {
		t.Errorf("steady state %.5f ± %.5f, theory %.5f", got.Mean, got.Half, want)
	}
}

// TestSameBitsOnAnyCores checks that results do not depend on the number of cores. It tests parallel runs, and agents
// that are simulated in parallel within one run.
func TestSameBitsOnAnyCores(t *testing.T) {
	for name, change := range experiments() {
		t.Run(name, func(t *testing.T) {
			e := sim.Default()
			// enough agents for several blocks
			e.Agents, e.Participants.Count, e.Runs, e.Rounds, e.Data.Spread, e.LocalSteps = 3000, 2000, 1, 3, 0.1,
				sim.Each(50)
			change(&e)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
			var first *sim.Result
			for _, cores := range []int{1, 2, 8} {
				runtime.GOMAXPROCS(cores)
				r := run(t, e)
				if first == nil {
					first = r
				} else if !reflect.DeepEqual(first, r) {
					t.Errorf("%d cores give another result than one", cores)
				}
			}
		})
	}
}

func experiments() map[string]func(*sim.Experiment) {
	return map[string]func(*sim.Experiment){
		"one run":   func(*sim.Experiment) {},
		"float32":   func(e *sim.Experiment) { e.Precision = sim.Float32 },
		"many runs": func(e *sim.Experiment) { e.Runs, e.Agents, e.Participants.Count = 5, 30, 10 },
		"drawn steps, stragglers, noise": func(e *sim.Experiment) {
			e.LocalSteps = sim.PerAgent{Draw: sim.Uniform, A: 20, B: 60}
			e.Response = sim.Response{Probability: sim.Each(0.7), StraggleUnit: sim.StraggleRound}
			e.GradientNoise = spec.GradientNoise{Law: spec.NoiseLaplace, Variance: 0.01}
		},
		"gradients": func(e *sim.Experiment) {
			e.Exchange, e.LocalSteps, e.BatchSize = spec.ExchangeGradient, sim.Each(1), sim.Each(50)
		},
		"feddec": func(e *sim.Experiment) {
			e.Agents, e.Participants.Count, e.Rounds, e.Runs, e.LocalSteps = 12, 3, 40, 3, sim.Each(1)
			e.Algorithm, e.Mixing.Graph, e.Mixing.Radius, e.Mixing.LinkUp, e.Sampling = spec.FedDec, sim.Geographic,
				0.5, 0.5, "with_replacement"
		},
	}
}

// TestBytes checks the metric of sent bytes. Updates must count with their compressed size, and models with their
// uncompressed size.
func TestBytes(t *testing.T) {
	for word, update := range map[spec.Codec]float64{spec.CodecRaw: 40, spec.CodecBFloat16: 20, spec.CodecInt8: 14,
		spec.CodecInt4: 9, spec.CodecSigns: 14, spec.TopKCodec(0.2): 16} {
		e := sim.Default()
		e.Runs, e.Rounds, e.Agents, e.Participants.Count, e.Codec = 1, 5, 8, 3, word
		r := run(t, e)
		up, all := r.Metric("uplink_bytes").Mean, r.Metric("total_bytes").Mean
		if got := up[len(up)-1]; got != 5*3*update {
			t.Errorf("%s: %v bytes to the server, want %v", word, got, 5*3*update)
		}
		if got := all[len(all)-1]; got != 5*3*(update+40) {
			t.Errorf("%s: %v bytes in all, want %v", word, got, 5*3*(update+40))
		}
	}
}

// TestFrozenMustBeThere checks that the simulator refuses frozen tensors that the model does not have.
func TestFrozenMustBeThere(t *testing.T) {
	for _, name := range []string{"layer0", "layer0.weight", "layer1"} {
		e := sim.Default()
		e.Runs, e.Rounds, e.Agents, e.Data.Model.FrozenTensors = 1, 1, 4, []string{name}
		if err := e.Check(); (err == nil) != (name != "layer1") {
			t.Errorf("frozen %s: %v", name, err)
		}
	}
}

// TestDefaultAggregationIsExact uses the data of the experiment feddec. FedAvg with exact gradients of all 20 agents
// must reach the minimum with the default aggregation. With bounded updates it does not reach the minimum, because the
// agents' targets differ by powers of two.
func TestDefaultAggregationIsExact(t *testing.T) {
	e := sim.Default()
	e.Runs, e.Rounds, e.Record, e.Agents, e.Participants.Count = 1, 3000, 3000, 20, 20
	e.LocalSteps, e.BatchSize = sim.Each(10), sim.Each(0)
	e.StepSize = spec.StepSize{IsDiminishing: true}
	e.Data.Kind, e.Data.Inputs, e.Data.Rows, e.Data.Deviation, e.Data.Base = data.KindRegression, 25, 10, 0.25, 2
	left := map[bool]float64{}
	for _, robust := range []bool{false, true} {
		cfg := round.DefaultConfig()
		cfg.UsesRobustAggregation = robust
		e.Aggregation = cfg.EffectiveAggregation()
		excess := run(t, e).Metric("excess_risk").Mean
		left[robust] = excess[len(excess)-1] / excess[0]
	}
	if left[false] > 1e-6 || left[true] < 0.4 {
		t.Errorf("left of the excess risk: %v by default, %v with robust", left[false], left[true])
	}
}
