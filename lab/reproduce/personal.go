package reproduce

import (
	"context"
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/lab/wisdm"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// personalExperiment compares personal models with one common model and with training on each device alone. It measures
// the accuracy on the held-out rows of each device. The models are softmax regression and a network with one hidden
// layer. The data are the activities in package wisdm.
type personalExperiment struct {
	Participants int     `json:"participants"` // number of participants per round, out of 27 devices
	StepSize     float64 `json:"step_size"`
	BatchSize    int     `json:"batch_size"`
	// Passes is the number of passes over a device's rows per round. If it is 0, LocalSteps determines the number of
	// local steps.
	Passes     int     `json:"passes"`
	LocalSteps int     `json:"local_steps"`
	Hidden     int     `json:"hidden"` // number of hidden units of the network
	Lambda     float64 `json:"lambda"` // penalty λ of the method Ditto
	Finetune   int     `json:"finetune"`
	Rounds     int     `json:"rounds"`
	Runs       int     `json:"runs"`
}

// defaultPersonal returns the experiment `personal` with its default settings, which docs/EXPERIMENTS.md describes.
func defaultPersonal() *personalExperiment {
	return &personalExperiment{Participants: 10, StepSize: 0.1, BatchSize: 20, Passes: 5, LocalSteps: 5, Hidden: 32,
		Lambda:   0.1,
		Finetune: 100, Rounds: 100, Runs: 8}
}

// About implements Experiment.
func (p *personalExperiment) About() About {
	return About{"personal", "For devices that differ, a personal last layer, Ditto and fine-tuning are more " +
		"accurate than one shared model and more accurate than training alone.",
		"Arivazhagan et al. 2019; Li et al. 2021"}
}

// personalCase is a row of the result table: a model and a training method.
type personalCase struct {
	model string // "softmax" or "mlp"
	key   string // name of the method in report keys, following the name of the model
	name  string // name of the method in the figure
	least float64
	set   func(e *sim.Experiment)
}

func (p *personalExperiment) cases() []personalCase {
	global := func(*sim.Experiment) {}
	alone := func(e *sim.Experiment) { // trains without penalty, with all agents in every round
		e.Personal.Method, e.Personal.DittoLambda, e.Participants.Count = spec.PersonalDitto, 0, 0
	}
	return []personalCase{
		{"softmax", "global", "softmax, shared model", 0, global},
		{"softmax", "alone", "softmax, alone", 0, alone},
		{"softmax", "ditto", "softmax, Ditto", 0.79, func(e *sim.Experiment) {
			e.Personal.Method, e.Personal.DittoLambda = spec.PersonalDitto, p.Lambda
		}},
		{"softmax", "finetune", "softmax, fine-tuned", 0.79,
			func(e *sim.Experiment) { e.Finetune.Steps = p.Finetune }},
		{"mlp", "global", "network, shared model", 0, global},
		{"mlp", "alone", "network, alone", 0, alone},
		{"mlp", "layers", "network, personal last layer", 0.81,
			func(e *sim.Experiment) { e.Personal.Layers = []string{learner.LastLayerName} }},
	}
}

// Run implements Experiment.
func (p *personalExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	r := &Report{About: p.About()}
	figure := plot.Figure{Title: "Personal models", X: plot.Axis{Label: "round i"},
		Y: plot.Axis{Label: "accuracy on the held-out rows of each device"}}
	found := map[string]estimate{}
	for _, c := range p.cases() {
		problem, err := wisdm.ProblemWithHeldOutRows(p.architecture(c.model))
		if err != nil {
			return nil, err
		}
		e := p.experiment(o, problem)
		c.set(&e)
		got, err := sim.RunInstances(ctx, e,
			func(int) (sim.Instance[float32], error) { return sim.Instance[float32]{Problem: problem}, nil }, nil)
		if err != nil {
			return nil, fmt.Errorf("personal: %s, %s: %w", c.model, c.key, err)
		}
		key := c.model + "_" + c.key
		for _, of := range []struct{ key, metric string }{{"", "own_accuracy"}, {"_mean", "own_accuracy_mean"},
			{"_worst", "own_accuracy_worst"}} {
			a := measured(got.At(of.metric, p.Rounds))
			found[key+of.key] = a
			r.Values.Set(key+of.key, a.mean)
			r.Values.Set(key+of.key+"_ci95", a.halfWidth)
		}
		p.judge(r, c, found)
		figure.Curves = append(figure.Curves, curveOf("own_accuracy", c.name, got))
	}
	r.figure("personal", figure)
	return r, nil
}

func (p *personalExperiment) architecture(model string) learner.Architecture {
	a := wisdm.Model()
	if model == "mlp" {
		a.Kind, a.HiddenUnits, a.Activation = spec.ModelMLP, []int{p.Hidden}, spec.ActivationTanh
	}
	return a
}

func (p *personalExperiment) experiment(o Options, problem *data.Problem[float32]) sim.Experiment {
	e := sim.Default()
	e.Seed, e.Runs, e.Rounds, e.Record = o.Seed, o.fullOrQuickCount(p.Runs, 2), p.Rounds, max(1, p.Rounds/10)
	e.Precision, e.Participants.Count = sim.Float32, p.Participants
	e.LocalSteps, e.BatchSize = sim.Each(float64(p.LocalSteps)), sim.Each(float64(p.BatchSize))
	if p.Passes > 0 {
		var steps []float64
		rows := problem.Loader(nil)
		for k := range problem.Agents {
			steps = append(steps, float64(p.Passes)*math.Ceil(float64(rows(k).Samples.Len())/float64(p.BatchSize)))
		}
		e.LocalSteps = sim.Each(steps...)
	}
	e.StepSize.Constant, e.StepSize.NormalizesStepSize = p.StepSize, false
	return e
}

// judge checks that a method is more accurate than the common model and than training alone.
func (p *personalExperiment) judge(r *Report, c personalCase, found map[string]estimate) {
	if c.least == 0 {
		return
	}
	a, worst := found[c.model+"_"+c.key], found[c.model+"_"+c.key+"_worst"]
	global, alone := found[c.model+"_global"], found[c.model+"_alone"]
	r.find(Finding{What: c.name + ": accuracy on own rows", Measured: a.String(),
		Expected: fmt.Sprintf("at least %.4g, %.4g (shared model) + 0.03 and %.4g (alone) + 0.02", c.least, global.mean,
			alone.mean),
		Holds: a.mean >= c.least && a.mean >= global.mean+0.03 && a.mean >= alone.mean+0.02})
	r.find(Finding{What: c.name + ": accuracy of the worst device", Measured: worst.String(),
		Expected: fmt.Sprintf("at least 0.45; %.4g with a shared model", found[c.model+"_global_worst"].mean),
		Holds:    worst.mean >= 0.45})
}
