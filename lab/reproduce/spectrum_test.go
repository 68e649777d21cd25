package reproduce

import (
	"context"
	"strings"
	"testing"
)

func TestSpectrum(t *testing.T) {
	r := check(t, &spectrumExperiment{Nodes: []int{6, 10}, Radii: []float64{0.5, 0.65}, Probabilities: []float64{0.5,
		0.7},
		Realisations: 100})
	best, _ := r.Values.Get("best_geo_r0.5_n10")
	fastest, _ := r.Values.Get("fastest_geo_r0.5_n10")
	if best < 0.5 || best > 0.75 || fastest >= best {
		t.Errorf("|λ₂|² is %v with the best constant and %v with the fastest weights", best, fastest)
	}
}

// TestSpectrumOfManyEdges checks that the experiment measures the other rules if it cannot compute the fastest weights.
func TestSpectrumOfManyEdges(t *testing.T) {
	r := check(t, &spectrumExperiment{Nodes: []int{70}, Probabilities: []float64{0.9}, Realisations: 2})
	if v, ok := r.Values.Get("best_random_p0.9_n70"); !ok || v <= 0 {
		t.Errorf("best constant: %v, %v", v, ok)
	}
	if v, ok := r.Values.Get("fastest_random_p0.9_n70"); ok {
		t.Errorf("fastest weights of 2,000 edges and more: %v", v)
	}
}

// TestSpectrumKeys checks that the report of the default settings contains every value that docs/EXPERIMENTS.md names.
func TestSpectrumKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole experiment")
	}
	s := defaultSpectrum()
	if s.Realisations < 200 {
		t.Errorf("%d realisations, want at least 200", s.Realisations)
	}
	s.Realisations = 2
	r, err := s.Run(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"best", "metropolis", "maxdegree", "fastest"} {
		for cell := range documentedEigenvalues {
			for _, end := range []string{"", "_sd", "_ci95"} {
				if v, ok := r.Values.Get(rule + "_" + cell + end); !ok || v <= 0 {
					t.Errorf("%s_%s%s is %v, %v", rule, cell, end, v, ok)
				}
			}
		}
	}
}

// TestSpectrumSeesAnotherRule checks that the comparison with the FedDec paper can distinguish the paper's edge weight
// rule from other rules.
func TestSpectrumSeesAnotherRule(t *testing.T) {
	defer func(rules []spectrumRule) { spectrumRules = rules }(spectrumRules)
	spectrumRules = spectrumRules[1:] // use the rule metropolis instead of the paper's rule
	s := defaultSpectrum()
	s.Nodes, s.Realisations = []int{10, 20}, 10
	r, err := s.Run(context.Background(), Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if f.Holds && strings.HasPrefix(f.What, "Table 1") {
			t.Errorf("Metropolis weights pass for those of the document: %+v", f)
		}
	}
}

func TestSpectrumRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("many graphs are drawn until none was connected")
	}
	for want, s := range map[string]*spectrumExperiment{
		"with radius 0.01 in the unit square was connected": {Nodes: []int{40}, Radii: []float64{0.01},
			Realisations: 2},
		"link probability 0 was connected": {Nodes: []int{40}, Probabilities: []float64{0}, Realisations: 2},
		"at least two realisations":        {Nodes: []int{10}, Radii: []float64{1}, Realisations: 1},
		"at least two nodes":               {Nodes: []int{1}, Radii: []float64{1}, Realisations: 2},
		"requires a number of nodes":       {Radii: []float64{1}, Realisations: 2},
		"a radius or a probability":        {Nodes: []int{10}, Realisations: 2},
	} {
		if _, err := s.Run(context.Background(), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
