package reproduce

import (
	"context"
	"encoding/json"
	"testing"
)

// check runs an experiment in its quick form, and again: every finding holds, and the report is the same.
func check(t *testing.T, e Experiment) *Report {
	t.Helper()
	o := Options{Quick: true, Seed: 1}
	r, err := e.Run(context.Background(), o)
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
	again, err := e.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	first, err1 := json.Marshal(r)
	second, err2 := json.Marshal(again)
	if err1 != nil || err2 != nil || string(first) != string(second) {
		t.Errorf("two runs differ: %v, %v", err1, err2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.Run(ctx, o); err == nil {
		t.Error("ran to its end though cancelled")
	}
	return r
}

func TestSampling(t *testing.T) {
	r := check(t, DefaultSampling())
	for _, key := range []string{"without_L1", "without_L8_theory", "with_L8", "with_L8_theory"} {
		if _, ok := r.Values.Get(key); !ok {
			t.Errorf("no value %s", key)
		}
	}
	other := &Sampling{Means: [][]float64{{1}, {2}, {5}}, Variances: []float64{3, 0, 1}, Trials: 20_000}
	check(t, other)
}
