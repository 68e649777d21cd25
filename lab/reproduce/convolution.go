package reproduce

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// convolutionExperiment measures the benefit of convolution. A model must recognise which of four motifs a noisy window
// contains, at a random position. A dense network must learn each motif at each position, from the few windows of the
// devices.
type convolutionExperiment struct {
	Steps        int       `json:"steps"` // length of a window in time steps
	Noise        float64   `json:"noise"` // standard deviation of the noise; the elements of a motif are −1 and 1
	Devices      int       `json:"devices"`
	Rows         int       `json:"rows"` // number of rows per device
	Participants int       `json:"participants"`
	BatchSize    int       `json:"batch_size"`
	LocalSteps   int       `json:"local_steps"`
	Filters      int       `json:"filters"`
	FilterStep   float64   `json:"filter_step"` // numbers of hidden units of the dense networks that are tried
	Units        []int     `json:"units"`       // step sizes that are tried with each dense network
	StepSizes    []float64 `json:"step_sizes"`  // step sizes tried with each network
	Margin       float64   `json:"margin"`
	Rounds       int       `json:"rounds"`
	Runs         int       `json:"runs"`
}

// defaultWindows returns the experiment `windows` with its default settings, which docs/EXPERIMENTS.md describes.
func defaultWindows() *convolutionExperiment {
	return &convolutionExperiment{Steps: 48, Noise: 0.5, Devices: 20, Rows: 20, Participants: 10, BatchSize: 10,
		LocalSteps: 10,
		Filters:    8, FilterStep: 0.1, Units: []int{2, 16, 64, 256}, StepSizes: []float64{0.1, 0.4, 1.6}, Margin: 0.25,
		Rounds: 100, Runs: 5}
}

// motifs are four rows of a Hadamard matrix of order 8, which are mutually orthogonal.
var motifs = [...][8]float32{{1, 1, 1, 1, -1, -1, -1, -1}, {1, 1, -1, -1, -1, -1, 1, 1}, {1, -1, -1, 1, 1, -1, -1, 1},
	{1, -1, 1, -1, 1, -1, 1, -1}}

// heldWindows is the number of test windows.
const heldWindows = 1000

// About implements Experiment.
func (x *convolutionExperiment) About() About {
	return About{"windows", "With few windows per device, filters detect a motif at any position in a window, but " +
		"fully connected networks do not.", "LeCun et al. 1989"}
}

// filters returns the convolutional model. The output layer receives the maximum of each filter over the window.
func (x *convolutionExperiment) filters() learner.Architecture {
	n := len(motifs[0])
	return learner.Architecture{Kind: spec.ModelConv1D, Inputs: x.Steps, Outputs: len(motifs), Risk: spec.LossSoftmax,
		HasBias: true, Activation: spec.ActivationReLU,
		Convolution: spec.Convolution{InputChannels: 1, KernelSteps: n, FiltersPerLayer: []int{x.Filters},
			PoolSteps: x.Steps - n + 1}}
}

// network returns a dense network with one hidden layer.
func (x *convolutionExperiment) network(units int) learner.Architecture {
	return learner.Architecture{Kind: spec.ModelMLP, Inputs: x.Steps, HiddenUnits: []int{units}, Outputs: len(motifs),
		Risk: spec.LossSoftmax, HasBias: true, Activation: spec.ActivationReLU}
}

// draw returns random windows, each with noise and one motif at a random position.
func (x *convolutionExperiment) draw(rows int, rng *rand.Rand) *learner.Samples[float32] {
	all, labels := make([]float32, rows*x.Steps), make([]float32, rows)
	for i := range labels {
		row, class := all[i*x.Steps:][:x.Steps], rng.IntN(len(motifs))
		labels[i] = float32(class)
		for t := range row {
			row[t] = float32(x.Noise * rng.NormFloat64())
		}
		at := rng.IntN(x.Steps - len(motifs[0]) + 1)
		for k, v := range motifs[class] {
			row[at+k] += v
		}
	}
	return learner.NewSamples(x.Steps, all, labels)
}

// problem returns the windows of a run, which are the same for every model.
func (x *convolutionExperiment) problem(model learner.Architecture, seed uint64, run int) (*data.Problem[float32],
	error) {
	rng := rand.New(rand.NewPCG(seed, uint64(run)))
	var held []*learner.Samples[float32]
	for range x.Devices {
		held = append(held, x.draw(x.Rows, rng))
	}
	p, err := data.NewHeld(model, held)
	if err != nil {
		return nil, err
	}
	p.Metrics = data.Scores(model, x.draw(heldWindows, rng))
	return p, nil
}

// validate returns an error if a setting is out of range.
func (x *convolutionExperiment) validate() error {
	if x.Steps < len(motifs[0]) || x.Devices < 1 || x.Rows < 1 || len(x.Units) == 0 || len(x.StepSizes) == 0 {
		return fmt.Errorf("windows: %d steps, %d devices, %d rows, units %v, step sizes %v: want at least %d steps "+
			"and at least one of each other value", x.Steps, x.Devices, x.Rows, x.Units, x.StepSizes, len(motifs[0]))
	}
	return nil
}

// learn trains a model in all runs of the experiment.
func (x *convolutionExperiment) learn(ctx context.Context, o Options, model learner.Architecture,
	step float64) (*sim.Result, error) {
	e := sim.Default()
	e.Seed, e.Runs, e.Rounds, e.Record = o.Seed, o.fullOrQuickCount(x.Runs, 3), x.Rounds, max(1, x.Rounds/20)
	e.Precision, e.Participants.Count = sim.Float32, x.Participants
	e.LocalSteps, e.BatchSize = sim.Each(float64(x.LocalSteps)), sim.Each(float64(x.BatchSize))
	e.StepSize.Constant, e.StepSize.NormalizesStepSize = step, false
	return sim.RunInstances(ctx, e, func(run int) (in sim.Instance[float32], err error) {
		in.Problem, err = x.problem(model, o.Seed, run)
		return in, err
	}, nil)
}

// Run implements Experiment.
func (x *convolutionExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	if err := x.validate(); err != nil {
		return nil, err
	}
	r := &Report{About: x.About()}
	figure := plot.Figure{Title: "Classification of the motif in a window", X: plot.Axis{Label: "round i"},
		Y: plot.Axis{Label: "accuracy on windows of no device"}}
	add := func(key, name string, got *sim.Result) estimate {
		a := measured(got.At("accuracy", x.Rounds))
		r.Values.Set(key, a.mean)
		r.Values.Set(key+"_ci95", a.halfWidth)
		figure.Curves = append(figure.Curves, curveOf("accuracy", name, got))
		return a
	}
	model := x.filters()
	got, err := x.learn(ctx, o, model, x.FilterStep)
	if err != nil {
		return nil, fmt.Errorf("windows: filters: %w", err)
	}
	found := add("conv1d", fmt.Sprintf("%d filters, %d parameters", x.Filters, model.ParameterCount()), got)
	best := estimate{}
	for _, units := range x.Units {
		model = x.network(units)
		var most *sim.Result
		by := 0.0
		for _, step := range x.StepSizes {
			got, err := x.learn(ctx, o, model, step)
			if err != nil {
				return nil, fmt.Errorf("windows: %d units, step size %v: %w", units, step, err)
			}
			if most == nil || got.At("accuracy", x.Rounds).Mean > most.At("accuracy", x.Rounds).Mean {
				most, by = got, step
			}
		}
		key := fmt.Sprintf("mlp_%d", units)
		a := add(key, fmt.Sprintf("%d units, %d parameters", units, model.ParameterCount()), most)
		r.Values.Set(key+"_step", by)
		if a.mean > best.mean {
			best = a
		}
	}
	r.find(Finding{What: "accuracy of the filters", Measured: found.String(),
		Expected: fmt.Sprintf("at least %.4g, and at least %.4g (best network) + %v", 0.9, best.mean, x.Margin),
		Holds:    found.mean >= 0.9 && found.mean >= best.mean+x.Margin})
	r.figure("windows", figure)
	return r, nil
}
