package reproduce

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/plot"
)

// smallFedDec returns the experiment with ten agents and fewer iterations.
func smallFedDec() *feddecExperiment {
	f := defaultFedDec()
	f.Agents, f.Inputs, f.Base = 10, 8, 1.5
	f.Radii, f.ServerEvery, f.Iterations = []float64{0.4, 0.8}, []int{5, 50}, 1000
	return f
}

func TestFedDec(t *testing.T) {
	r := check(t, smallFedDec())
	for _, key := range []string{"fedavg_H5_t1000", "feddec_r0.4_H50_t1000", "feddec_r0.8_H5_t1000_ci95",
		"ratio_r0.8_H50", "alpha_r0.4", "bound_r0.4_H5_t1000"} {
		if v, ok := r.Values.Get(key); !ok || v <= 0 {
			t.Errorf("%s is %v, %v", key, v, ok)
		}
	}
	graphs := 0
	for _, p := range r.Plots {
		if _, ok := p.Drawing.(plot.Network); ok {
			graphs++
		}
	}
	if graphs != 2 || len(r.Plots) != 4 {
		t.Errorf("%d graphs among %d plots, want 2 among 4", graphs, len(r.Plots))
	}
	if testing.Short() {
		return
	}
	failing := smallFedDec()
	failing.Weights, failing.LinkUp, failing.Iterations, failing.BatchSize = "metropolis", 0.5, 777, 3
	r = check(t, failing)
	if _, ok := r.Values.Get("feddec_r0.4_H50_t750"); !ok { // values are recorded only in iterations t with t mod H = 0
		t.Errorf("no value at t = 750 among %q", r.Values.Keys())
	}
}

// TestFedDecWithoutNeighbours checks that the experiment refutes its claim if no messages between neighbours arrive.
func TestFedDecWithoutNeighbours(t *testing.T) {
	f := smallFedDec()
	f.Weights, f.LinkUp = "metropolis", 1e-12
	r, err := f.Run(t.Context(), Options{Quick: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if f.Holds && !strings.Contains(f.What, "Theorem 1") && !strings.Contains(f.What, "working links") {
			t.Errorf("holds without neighbours: %+v", f)
		}
	}
	if ratio, _ := r.Values.Get("ratio_r0.4_H50"); r.Holds || ratio != 1 {
		t.Errorf("holds: %v, FedAvg is worse by %v", r.Holds, ratio)
	}
}

func TestFedDecRefuses(t *testing.T) {
	for want, change := range map[string]func(*feddecExperiment){
		"golden":                        func(f *feddecExperiment) { f.Weights = "golden" },
		"at least 2 instances of 1 run": func(f *feddecExperiment) { f.Instances = 1 },
		"at least one of each":          func(f *feddecExperiment) { f.Radii = nil },
		"server_every":                  func(f *feddecExperiment) { f.ServerEvery = []int{2000} },
		"not strongly convex":           func(f *feddecExperiment) { f.Inputs = 101 },
		"mixing.link_up":                func(f *feddecExperiment) { f.LinkUp = 0 },
		"-1 participants":               func(f *feddecExperiment) { f.Participants = -1 },
		"in the unit square was co":     func(f *feddecExperiment) { f.Agents, f.Radii = 100, []float64{0.001} },
	} {
		f := smallFedDec()
		change(f)
		if _, err := f.Run(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "feddec: ") {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
