package reproduce

import (
	"context"
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/lab/datasets"
	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// harExperiment trains an activity classifier by federated averaging on the data of 21 people and tests it on 9 other
// people. Package datasets describes the data.
type harExperiment struct {
	File         string  `json:"file"`
	Participants int     `json:"participants"` // participants per round, of 21 devices
	StepSize     float64 `json:"step_size"`
	BatchSize    int     `json:"batch_size"`
	Steps        int     `json:"local_steps"`
	Rounds       int     `json:"rounds"`
	Runs         int     `json:"runs"`
}

func defaultHAR() *harExperiment {
	return &harExperiment{Participants: 7, StepSize: 0.1, BatchSize: 32, Steps: 10, Rounds: 100, Runs: 5}
}

// About implements Experiment.
func (h *harExperiment) About() About {
	return About{"har", "Federated averaging of softmax regression recognises the activities of new people nearly as " +
		"well as central training, and far better than a single device. Requires har.file.",
		"McMahan et al. 2017; data: Anguita et al. 2013"}
}

// harReferenceAccuracy contains, for some rounds, the accuracy of an independent numpy implementation on the same rows.
var harReferenceAccuracy = map[int]float64{20: 0.924, 50: 0.932, 100: 0.933}

const (
	harCentralReferenceAccuracy = 0.954 // accuracy of logistic regression on all rows
	harLocalReferenceAccuracy   = 0.761 // accuracy of training on one device alone, mean over 21 devices
)

// Run implements Experiment.
func (h *harExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	r := &Report{About: h.About()}
	if h.File == "" {
		return nil, errors.New("har.file is empty: set it with --set har.file=FILE to a CSV file with the columns " +
			"subject, test, label and features, as described in docs/EXPERIMENTS.md")
	}
	problem, err := datasets.HAR(h.File)
	if err != nil {
		return nil, err
	}
	figure := plot.Figure{Title: "Activities of people without a device", X: plot.Axis{Label: "round i"},
		Y: plot.Axis{Label: "accuracy"}}
	e := sim.Default()
	e.Seed, e.Runs, e.Rounds, e.Record = o.Seed, o.fullOrQuickCount(h.Runs, 2), h.Rounds, min(10, h.Rounds)
	e.Precision, e.Participants.Count, e.WeighRows, e.Weighting = sim.Float32, h.Participants, true,
		spec.WeightInServerMean
	e.LocalSteps, e.BatchSize = sim.Each(float64(h.Steps)), sim.Each(float64(h.BatchSize))
	e.StepSize.Constant, e.StepSize.NormalizesStepSize = h.StepSize, false
	got, err := sim.RunInstances(ctx, e,
		func(int) (sim.Instance[float32], error) { return sim.Instance[float32]{Problem: problem}, nil }, nil)
	if err != nil {
		return nil, fmt.Errorf("har: %w", err)
	}
	for _, round := range got.Rounds {
		a := measured(got.At("accuracy", round))
		r.Values.Set(fmt.Sprintf("round_%d", round), a.mean)
		r.Values.Set(fmt.Sprintf("round_%d_ci95", round), a.halfWidth)
		if want := harReferenceAccuracy[round]; want > 0 && h.isDefault() {
			r.find(Finding{What: fmt.Sprintf("accuracy after %d rounds", round), Measured: a.String(),
				Expected: fmt.Sprintf("%.3g ± 0.01, as in numpy", want),
				Holds:    a.mean >= want-0.01 && a.mean <= want+0.01})
		}
	}
	figure.Curves = append(figure.Curves, curveOf("accuracy", "softmax regression", got))
	r.figure("har", figure)
	last := measured(got.At("accuracy", e.Rounds))
	return r, h.compareWithoutFederation(ctx, r, e, problem, last)
}

// compareWithoutFederation trains one model per device, and one model on the rows of all devices. Each model is trained
// with as many local steps as an agent takes that participates in every round.
func (h *harExperiment) compareWithoutFederation(ctx context.Context, r *Report, e sim.Experiment,
	problem *data.Problem[float32],
	together estimate) error {
	e.Runs, e.Participants.Count, e.WeighRows, e.Record = 1, 0, false, e.Rounds
	train := func(held ...*learner.Samples[float32]) (float64, error) {
		one, err := data.NewHeld(problem.Model, held)
		if err != nil {
			return 0, err
		}
		one.Metrics = problem.Metrics
		got, err := sim.RunInstances(ctx, e,
			func(int) (sim.Instance[float32], error) { return sim.Instance[float32]{Problem: one}, nil }, nil)
		if err != nil {
			return 0, err
		}
		return got.At("accuracy", e.Rounds).Mean, nil
	}
	var x, y []float32
	mean, rows := 0.0, problem.Loader(nil)
	for k := range problem.Agents {
		s := rows(k).Samples
		a, err := train(s)
		if err != nil {
			return fmt.Errorf("har, device %d alone: %w", k, err)
		}
		mean += a / float64(problem.Agents)
		x, y = append(x, s.All().X...), append(y, s.All().Y...)
	}
	central, err := train(learner.NewSamples(problem.Model.Inputs, x, y))
	if err != nil {
		return fmt.Errorf("har, central training: %w", err)
	}
	r.Values.Set("alone", mean)
	r.Values.Set("central", central)
	r.find(Finding{What: "mean accuracy of a single device", Measured: fmt.Sprintf("%.4g", mean),
		Expected: fmt.Sprintf("at most %.4g (federated) − 0.1; %.3g with another implementation of logistic "+
			"regression", together.mean,
			harLocalReferenceAccuracy),
		Holds: mean <= together.mean-0.1})
	r.find(Finding{What: "accuracy of central training with the same number of steps", Measured: fmt.Sprintf("%.4g",
		central),
		Expected: fmt.Sprintf("within 0.03 of %.4g (federated); %.3g with another implementation of logistic "+
			"regression", together.mean,
			harCentralReferenceAccuracy), Holds: central >= together.mean-0.03 && central <= together.mean+0.03})
	return nil
}

// isDefault reports whether all settings except file, runs and rounds have their default values.
func (h *harExperiment) isDefault() bool {
	d := *defaultHAR()
	d.File, d.Runs, d.Rounds = h.File, h.Runs, h.Rounds
	return *h == d
}
