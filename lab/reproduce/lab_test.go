package reproduce

import (
	"math"
	"strings"
	"testing"
)

func TestLabs(t *testing.T) {
	for _, l := range []*LabExperiment{linearGain(), lab1(), lab2(), Lab3(), Lab4(), async()} {
		for i, c := range l.Cases { // a fifth of the agents, to save time
			l.Cases[i].Agents, l.Cases[i].Participants = max(1, c.Agents/5), max(1, c.Participants/5)
		}
		l.StepSize, l.Runs, l.Window = 0.03, 12, 300
		t.Run(l.Subject.ID, func(t *testing.T) { check(t, l) })
	}
	other := Lab4()
	other.Inputs, other.StepSize, other.RegressorVar = 4, 0.03, 0.7
	other.Cases = []LabCase{{20, 20, 1, 0.3}, {20, 4, 3, 0.3}}
	other.Runs, other.Window = 12, 300
	r := check(t, other)
	for _, key := range []string{"K20_L4_E3_sw0.3", "K20_L4_E3_sw0.3_theory", "K20_L20_E1_sw0.3_ci95"} {
		if _, ok := r.Values.Get(key); !ok {
			t.Errorf("no value %s", key)
		}
	}
	other.StepSize = 3
	if _, err := other.Run(t.Context(), Options{Quick: true}); err == nil {
		t.Error("μ = 3 is far above the stability limit")
	}
}

// TestLabFromBelow checks a run that starts closer to the optimum than the steady-state error. The burn-in must take as
// long as from the other side.
func TestLabFromBelow(t *testing.T) {
	l := Lab4()
	l.Inputs, l.StepSize, l.NoiseVar, l.Runs, l.Window = 2, 0.1, 50_000, 24, 500
	l.Cases = []LabCase{{3, 2, 2, 0.3}, {3, 3, 1, 0}}
	l.Claims = nil
	for _, c := range l.Cases {
		exact := l.theory(c)
		burn := l.burnInRounds(exact)
		curve := exact.Curve(l.start(c), burn)
		if away := math.Abs(curve[burn]/exact.MSD() - 1); burn < 30 || away > 0.001 || curve[0] > exact.MSD() {
			t.Errorf("%v: after %d rounds the error is %v off", c, burn, away)
		}
	}
	check(t, l)
}

func TestMSD(t *testing.T) {
	small := defaultMSD()
	small.Runs, small.Window = 12, 1500
	check(t, small)
	other := &steadyMSD{lmsSettings{Participants: 2, StepSize: 0.1, LocalSteps: []int{4, 1, 2}, BatchSizes: []int{1, 5,
		2},
		Regressors: [][]float64{{1, 0.5}, {0.3, 0.6}, {0.8, 0.8}}, NoiseVar: []float64{1, 0.1, 0.5},
		Optima: [][]float64{{0, 1}, {1, 0}, {-1, 2}}, Runs: 24, Window: 1000}}
	check(t, other)
	check(t, &steadyMSD{lmsSettings{Participants: 1, StepSize: 0.1, LocalSteps: []int{1}, BatchSizes: []int{1},
		Regressors: [][]float64{{1}}, NoiseVar: []float64{0},
		Optima: [][]float64{{0}}, Runs: 2, Window: 10}}) // the initial model is the optimum, so the model never moves
	near := *other // with this step size, the second moment settles far more slowly than the mean
	near.StepSize = 2.7
	exact, err := near.theory(true).SteadyState()
	if err != nil || exact.Rate < 0.9 {
		t.Fatalf("rate %v, %v", exact.Rate, err)
	}
	curve, err := near.theory(true).Curve(make([]float64, 2), burnInRounds(exact))
	if err != nil || math.Abs(curve[burnInRounds(exact)]/exact.MSD-1) > 0.001 {
		t.Errorf("after %d rounds %v, %v; the limit is %v", burnInRounds(exact), curve[burnInRounds(exact)], err,
			exact.MSD)
	}
	for want, change := range map[string]func(*steadyMSD){
		"2 noise variances":   func(m *steadyMSD) { m.NoiseVar = m.NoiseVar[:2] },
		"agent 1: regressors": func(m *steadyMSD) { m.Regressors = [][]float64{{1, 1}, {1}, {1, 1}} },
		"agent 2: regressors": func(m *steadyMSD) { m.Regressors = [][]float64{{1, 1}, {1, 1}, {1, -1}} },
		"agent 0: regressors": func(m *steadyMSD) {
			m.Optima, m.Regressors = [][]float64{{}, {}, {}},
				[][]float64{{}, {}, {}}
		},
		"1 runs":                      func(m *steadyMSD) { m.Runs = 1 },
		"window of 0":                 func(m *steadyMSD) { m.Window = 0 },
		"stability limit":             func(m *steadyMSD) { m.StepSize = 3 },
		"participants: 4 of 3 agents": func(m *steadyMSD) { m.Participants = 4 },
		"noise variance -1":           func(m *steadyMSD) { m.NoiseVar = []float64{0, -1, 0} },
	} {
		m := *other
		change(&m)
		if _, err := m.Run(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestBias(t *testing.T) {
	b := defaultBias()
	b.Runs, b.Window = 12, 1000
	check(t, b)
	// Test a single parameter, with numbers of local steps that do not divide the step size without rounding.
	check(t, &biasExperiment{lmsSettings{Participants: 2, StepSize: 0.01, LocalSteps: []int{1, 3, 7},
		BatchSizes: []int{1, 1, 2},
		NoiseVar:   []float64{0.1, 0.1, 0},
		Regressors: [][]float64{{1}, {1}, {0.5}}, Optima: [][]float64{{1}, {2}, {-4}}, Runs: 12, Window: 2000}})
	// Test a problem in which one coordinate of the limit is 0.
	check(t, &biasExperiment{lmsSettings{Participants: 1, StepSize: 0.02, LocalSteps: []int{2, 6}, BatchSizes: []int{1,
		1},
		NoiseVar:   []float64{0.1, 0.1},
		Regressors: [][]float64{{1, 1}, {1, 1}}, Optima: [][]float64{{5, 0}, {2, 0}}, Runs: 12, Window: 2000}})
}
