package reproduce

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
)

// check runs a quick experiment and checks that every finding holds.
func check(t *testing.T, e Experiment) *Report {
	t.Helper()
	r, err := e.Run(t.Context(), Options{Quick: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if !f.Holds {
			t.Errorf("%s: measured %s, expected %s", f.What, f.Measured, f.Expected)
		}
	}
	if !r.Holds || r.About != e.About() || len(r.Plots) == 0 {
		t.Errorf("holds: %v, about %+v, %d plots", r.Holds, r.About, len(r.Plots))
	}
	return r
}

// TestRepeatable checks that a report is the same on one core and on all cores, and that it depends on the seed.
// Cancelling the context must end an experiment.
func TestRepeatable(t *testing.T) {
	lab := Lab4()
	lab.Cases, lab.Runs, lab.Window = []LabCase{{4, 4, 1, 0.1}, {4, 2, 3, 0.1}}, 3, 50
	mixing := smallFedDec()
	mixing.Radii, mixing.ServerEvery, mixing.Iterations, mixing.Instances, mixing.Runs = []float64{0.6}, []int{5}, 50,
		3, 2
	graphs := &spectrumExperiment{Nodes: []int{6}, Radii: []float64{0.5}, Probabilities: []float64{0.5},
		Realisations: 3}
	escape, small, toy := smallSaddle(), smallBound(), defaultToy()
	escape.Participants, escape.Rounds, escape.Steady, escape.Runs = []int{3}, 60, 50, 3
	small.Runs, toy.Rounds, toy.Runs = 3, 20, 3
	for _, e := range []Experiment{lab, mixing, graphs, escape, small, toy,
		&samplingExperiment{Means: [][]float64{{1}, {2}}, Variances: []float64{3, 0}, Trials: 100}} {
		run := func(seed uint64) string {
			r, err := e.Run(t.Context(), Options{Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range r.Plots {
				drawn, err := p.SVG()
				if err != nil {
					t.Fatal(err)
				}
				text = append(text, drawn...)
			}
			return string(text)
		}
		all := run(1)
		cores := runtime.GOMAXPROCS(1)
		if one := run(1); one != all {
			t.Errorf("%s differs on one core:\n%s\n%s", e.About().ID, one, all)
		}
		runtime.GOMAXPROCS(cores)
		if run(2) == all {
			t.Errorf("%s does not depend on the seed", e.About().ID)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := e.Run(ctx, Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled: %v", e.About().ID, err)
		}
	}
}

func TestSampling(t *testing.T) {
	whole := defaultSampling()
	whole.Trials = 5000
	r := check(t, whole)
	for _, key := range []string{"without_L1", "without_L8_theory", "with_L8", "with_L8_theory"} {
		if _, ok := r.Values.Get(key); !ok {
			t.Errorf("no value %s", key)
		}
	}
	other := &samplingExperiment{Means: [][]float64{{1}, {2}, {5}}, Variances: []float64{3, 0, 1}, Trials: 5000}
	check(t, other)
	// Without replacement, the sample contains both vectors, so the result is deterministic.
	check(t, &samplingExperiment{Means: [][]float64{{1.1}, {2.3}}, Variances: []float64{0, 0}, Trials: 5000})
	// every measured value must be zero
	alone := check(t, &samplingExperiment{Means: [][]float64{{1.1}}, Variances: []float64{0}, Trials: 10})
	for _, p := range alone.Plots {
		if _, err := p.SVG(); err != nil {
			t.Error(err)
		}
	}
	for want, s := range map[string]*samplingExperiment{
		"0 means":                 {Trials: 10},
		"1 variances":             {Means: [][]float64{{1}, {2}}, Variances: []float64{1}, Trials: 10},
		"1 trials":                {Means: [][]float64{{1}}, Variances: []float64{1}, Trials: 1},
		"vectors of equal length": {Means: [][]float64{{1}, {2, 3}}, Variances: []float64{1, 1}, Trials: 10},
		"non-empty vectors":       {Means: [][]float64{{}}, Variances: []float64{1}, Trials: 10},
		"variances [1 -1]":        {Means: [][]float64{{1}, {2}}, Variances: []float64{1, -1}, Trials: 10},
	} {
		if _, err := s.Run(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
