package reproduce

import "testing"

func TestLabs(t *testing.T) {
	for _, l := range []*Lab{LinearGain(), Lab1(), Lab2(), Lab3(), Lab4(), Async()} {
		for i, c := range l.Cases { // a fifth of the agents, and faster
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

func TestMSD(t *testing.T) {
	small := DefaultMSD()
	small.Runs, small.Window = 12, 1500
	check(t, small)
	other := &MSD{LMS{Participants: 2, StepSize: 0.1, LocalSteps: []int{4, 1, 2}, BatchSizes: []int{1, 5, 2},
		Regressors: [][]float64{{1, 0.5}, {0.3, 0.6}, {0.8, 0.8}}, NoiseVar: []float64{1, 0.1, 0.5},
		Optima: [][]float64{{0, 1}, {1, 0}, {-1, 2}}, Runs: 24, Window: 1000}}
	check(t, other)
	other.NoiseVar = other.NoiseVar[:2]
	if _, err := other.Run(t.Context(), Options{}); err == nil {
		t.Error("two noise variances for three agents")
	}
}

func TestBias(t *testing.T) {
	b := DefaultBias()
	b.Runs, b.Window = 12, 1000
	check(t, b)
}
