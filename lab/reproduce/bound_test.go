package reproduce

import (
	"math"
	"strings"
	"testing"
)

// smallBound returns a different instance of the experiment, with three clients in two dimensions.
func smallBound() *boundExperiment {
	return &boundExperiment{Smoothness: 2, Eigenvalues: []float64{0.3, 1}, Centres: [][]float64{{1, 0}, {-2, 1}, {0.5,
		2}},
		Start: []float64{4, -3},
		Cases: []boundCase{{0.1, 3, 15, 0.8}, {0.125, 1, 30, 0}}, Runs: 24}
}

func TestBound(t *testing.T) {
	r := check(t, smallBound())
	for _, key := range []string{"L2_eta0.1_tau3_T15_s0.8_left", "L2_eta0.125_tau1_T30_s0_right"} {
		if v, ok := r.Values.Get(key); !ok || v <= 0 {
			t.Errorf("%s is %v, %v", key, v, ok)
		}
	}
	if c := defaultBound(); c.key(c.Cases[0]) != "L1_eta0.25_tau5_T40_s1" {
		t.Errorf("the first case is %s", c.key(c.Cases[0]))
	}
}

func TestBoundRefuses(t *testing.T) {
	for want, change := range map[string]func(*boundExperiment){
		"a maximum of 1":       func(b *boundExperiment) { b.Eigenvalues[1] = 2 },
		"positive eigenvalues": func(b *boundExperiment) { b.Eigenvalues[0] = 0 },
		"2 numbers each":       func(b *boundExperiment) { b.Start = []float64{1} },
		"η ≤ 1/(4L) = 0.125":   func(b *boundExperiment) { b.Cases[0].StepSize = 0.2 },
		"σ ≥ 0":                func(b *boundExperiment) { b.Cases[0].Deviation = -1 },
		"at least one case":    func(b *boundExperiment) { b.Cases = nil },
		"local_steps":          func(b *boundExperiment) { b.Cases[0].Steps = 0 },
	} {
		b := smallBound()
		change(b)
		if _, err := b.Run(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestToy(t *testing.T) {
	y := defaultToy()
	y.Rounds = 100
	check(t, y)
	other := &toyExperiment{Agents: 3, Rows: 7, Mean: []float64{0.5, -1, 0.2}, Variance: 0.6, Skew: 0, StepSize: 0.02,
		Steps:     2,
		BatchSize: 1, Rounds: 150, Runs: 48}
	r := check(t, other)
	if v, _ := r.Values.Get("accuracy"); math.IsNaN(v) || v < 0.6 || v > 1 {
		t.Errorf("accuracy %v", v)
	}
	other.Rounds = 1 // with only one round, the model cannot learn
	if r, err := other.Run(t.Context(), Options{Seed: 1}); err != nil || r.Holds {
		t.Errorf("holds after one round: %v", err)
	}
	other.Agents = 0
	if _, err := other.Run(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "toy: 0 agents") {
		t.Errorf("no agents: %v", err)
	}
}
