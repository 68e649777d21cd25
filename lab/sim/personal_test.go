package sim_test

import (
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// line contains the rows (x, y) of two agents for the linear model w·x + b. The last row of each agent is held out.
type line struct{ x, y [2][]float64 }

func newLine() line {
	return line{x: [2][]float64{{1, -2, 0.5}, {2, 1, -1, 3}}, y: [2][]float64{{3, 0.5, 1}, {-1, 2, 0, 4}}}
}

func (l line) instance(t *testing.T) func(int) (sim.Instance[float64], error) {
	var held []*learner.Samples[float64]
	for k := range l.x {
		held = append(held, learner.NewSamples(1, l.x[k], l.y[k]))
	}
	trained, out, err := data.HoldOut(held, 0.3)
	if err != nil {
		t.Fatal(err)
	}
	p, err := data.NewHeld(learner.Architecture{Inputs: 1, Outputs: 1, Risk: spec.LossSquared, HasBias: true}, trained)
	if err != nil {
		t.Fatal(err)
	}
	p.HeldOut = out
	return func(int) (sim.Instance[float64], error) { return sim.Instance[float64]{Problem: p}, nil }
}

// gradient returns the gradient of agent k's risk over its training rows at (w, b).
func (l line) gradient(k int, w, b float64) (dw, db float64) {
	n := len(l.x[k]) - 1
	for i := range n {
		miss := (w*l.x[k][i] + b - l.y[k][i]) / float64(n)
		dw, db = dw+miss*l.x[k][i], db+miss
	}
	return dw, db
}

// risk returns the risk of agent k on its held-out row.
func (l line) risk(k int, w, b float64) float64 {
	i := len(l.x[k]) - 1
	miss := w*l.x[k][i] + b - l.y[k][i]
	return miss * miss / 2
}

// TestPersonal compares each method of personalisation with a manual computation that uses exact gradients.
func TestPersonal(t *testing.T) {
	const mu, lambda, steps, rounds, fine = 0.1, 0.7, 3, 4, 5
	l := newLine()
	for _, tt := range []struct {
		name   string
		change func(e *sim.Experiment)
		bias   bool // true if the bias is a personal parameter
		ditto  bool
		fine   int
	}{
		{name: "global", change: func(*sim.Experiment) {}},
		{name: "bias", change: func(e *sim.Experiment) { e.Personal.Layers = []string{"layer0.bias"} }, bias: true},
		{name: "ditto", change: func(e *sim.Experiment) {
			e.Personal.Method, e.Personal.DittoLambda = spec.PersonalDitto, lambda
		}, ditto: true},
		{name: "fine-tuned", change: func(e *sim.Experiment) { e.Finetune.Steps = fine }, fine: fine},
		{name: "bias, fine-tuned", change: func(e *sim.Experiment) {
			e.Personal.Layers, e.Finetune.Steps = []string{"layer0.bias"}, fine
		}, bias: true, fine: fine},
	} {
		e := sim.Default()
		e.Runs, e.Rounds, e.Record, e.Participants.Count, e.LocalSteps, e.BatchSize = 1, rounds, 1, 2, sim.Each(steps),
			sim.Each(0)
		e.StepSize.Constant = mu // the step size is normalised, so each local step has the size mu/steps
		tt.change(&e)
		got, err := sim.RunInstances(t.Context(), e, l.instance(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		var w, b float64
		var bs, vw, vb [2]float64
		for i := 1; i <= rounds; i++ {
			var dw, db float64
			for k := range 2 {
				x, y := w, b
				if tt.bias {
					y = bs[k]
				}
				for range steps {
					gw, gb := l.gradient(k, x, y)
					x, y = x-mu/steps*gw, y-mu/steps*gb
					gw, gb = l.gradient(k, vw[k], vb[k])
					vw[k], vb[k] = vw[k]-mu*(gw+lambda*(vw[k]-w)), vb[k]-mu*(gb+lambda*(vb[k]-b))
				}
				dw, db, bs[k] = dw+(x-w)/2, db+(y-b)/2, y
			}
			if w += dw; !tt.bias {
				b += db
			}
			want := 0.
			for k := range 2 {
				x, y := w, b
				switch {
				case tt.bias:
					y = bs[k]
				case tt.ditto:
					x, y = vw[k], vb[k]
				}
				for range tt.fine {
					gw, gb := l.gradient(k, x, y)
					x, y = x-mu*gw, y-mu*gb
				}
				want += l.risk(k, x, y) / 2
			}
			if risk := got.At("own_risk", i).Mean; !(math.Abs(risk-want) < 1e-12) {
				t.Errorf("%s, round %d: risk %v, want %v", tt.name, i, risk, want)
			}
		}
		if got := got.Final[0]; math.Abs(got[0]-w)+math.Abs(got[1]-b) > 1e-12 {
			t.Errorf("%s: the model is %v, want %v %v", tt.name, got, w, b)
		}
		if sent := got.At("uplink_bytes", rounds).Mean; tt.bias != (sent == 2*rounds*4) {
			t.Errorf("%s: %v bytes were sent", tt.name, sent)
		}
	}
}

// TestDittoLeavesTheModel checks that the server's model is bit-for-bit the same with and without Ditto and
// fine-tuning.
func TestDittoLeavesTheModel(t *testing.T) {
	e := personal()
	plain := run(t, e)
	for name, change := range map[string]func(){
		"ditto":       func() { e.Personal.Method = spec.PersonalDitto },
		"fine-tuning": func() { e.Finetune.Steps = 7 },
	} {
		e = personal()
		change()
		got := run(t, e)
		if !reflect.DeepEqual(got.Final, plain.Final) ||
			!reflect.DeepEqual(got.Metric("risk").Runs, plain.Metric("risk").Runs) {
			t.Errorf("%s changes the server's model", name)
		}
		if reflect.DeepEqual(got.Metric("own_accuracy").Runs, plain.Metric("own_accuracy").Runs) {
			t.Errorf("%s gives nobody a model of its own", name)
		}
	}
}

// TestPersonalOnAnyCores checks that personal models do not depend on the number of cores.
func TestPersonalOnAnyCores(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for name, change := range map[string]func(e *sim.Experiment){
		"layers": func(e *sim.Experiment) { e.Personal.Layers = []string{"last"} },
		"ditto":  func(e *sim.Experiment) { e.Personal.Method = spec.PersonalDitto },
	} {
		var first *sim.Result
		for _, cores := range []int{1, 8} {
			runtime.GOMAXPROCS(cores)
			e := personal()
			e.Runs, e.Agents, e.Participants.Count, e.Data.Rows = 1, 40, 30, 3000
			e.LocalSteps = sim.Each(400) // enough work for several goroutines
			change(&e)
			r := run(t, e)
			if first == nil {
				first = r
			} else if !reflect.DeepEqual(first, r) {
				t.Errorf("%s: %d cores give another result than one", name, cores)
			}
		}
	}
}

// personal returns an experiment whose agents have different data, and which uses every kind of random draw.
func personal() sim.Experiment {
	e := sim.Default()
	e.Agents, e.Participants.Count, e.Runs, e.Rounds, e.Record = 8, 3, 2, 12, 4
	e.LocalSteps, e.BatchSize, e.StepSize.Constant = sim.Each(3), sim.Each(4), 0.3
	e.Response.Probability, e.GradientNoise = sim.Each(0.7), spec.GradientNoise{Law: spec.NoiseGaussian, Variance: 0.01}
	e.Data.Kind, e.Data.Inputs, e.Data.Rows, e.Data.OwnHeldOut = data.KindBlobs, 3, 300, 0.3
	e.Data.Partition, e.Data.Alpha = data.PartitionDirichlet, 0.5
	e.Data.Model = spec.Model{Kind: spec.ModelMLP, HiddenUnits: []int{4}, Classes: 3, Risk: spec.LossSoftmax,
		Activation: spec.ActivationTanh, HasBias: true}
	return e
}

// TestPersonalRefused checks that invalid settings are reported with their configuration key before the first round.
func TestPersonalRefused(t *testing.T) {
	for want, change := range map[string]func(e *sim.Experiment){
		"data.own_held_out: is 0, but personal models are evaluated": func(e *sim.Experiment) {
			e.Finetune.Steps, e.Data.OwnHeldOut = 1, 0
		},
		"data.own_held_out: is 1;":     func(e *sim.Experiment) { e.Data.OwnHeldOut = 1 },
		"personal.layers: is [layer7]": func(e *sim.Experiment) { e.Personal.Layers = []string{"layer7"} },
		"at least one tensor must be shared": func(e *sim.Experiment) {
			e.Personal.Layers = []string{"layer0", "last"}
		},
		"personal.lambda: invalid value -1":     func(e *sim.Experiment) { e.Personal.DittoLambda = -1 },
		"finetune.steps: invalid value -1":      func(e *sim.Experiment) { e.Finetune.Steps = -1 },
		"personal: uses random draws":           func(e *sim.Experiment) { e.Dump, e.Finetune.Steps = t.TempDir(), 1 },
		"personal.method: want layers or ditto": func(e *sim.Experiment) { e.Personal.Method = "x" },
		"ditto personalizes the whole model": func(e *sim.Experiment) {
			e.Personal.Method, e.Personal.Layers = "ditto", []string{"last"}
		},
	} {
		e := personal()
		change(&e)
		if err := e.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
