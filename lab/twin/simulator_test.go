package twin

import (
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// TestGoldenSimulator compares the simulator with the golden files of algorithms without random draws, in which all
// agents participate with exact gradients.
func TestGoldenSimulator(t *testing.T) {
	files := 0
	for _, g := range load(t) {
		if !slices.Contains([]string{"gradient-parameters", "gradient-gradients", "weighted-exact"}, g.Algorithm) {
			continue
		}
		files++
		t.Run(g.Algorithm, func(t *testing.T) {
			var held []*learner.Samples[float64]
			var steps, weights []float64
			for k, a := range g.Agents {
				held = append(held, g.samples(k))
				steps = append(steps, float64(g.steps(k)))
				weights = append(weights, a.P)
			}
			problem, err := data.NewHeld(g.architecture(), held)
			if err != nil {
				t.Fatal(err)
			}
			problem.Start = g.Start
			if weights[0] > 0 {
				problem.Weights = weights
			}
			e := sim.Default()
			e.Runs, e.Participants.Count, e.LocalSteps, e.BatchSize = 1, 0, sim.Each(steps...), sim.Each(0)
			e.StepSize.Constant, e.StepSize.NormalizesStepSize = g.StepSize, g.setting().normalize
			e.Weighting = g.setting().weighting
			if g.setting().exchange == spec.ExchangeGradient {
				e.Exchange, e.LocalSteps = spec.ExchangeGradient, sim.Each(1)
			}
			instance := func(int) (sim.Instance[float64], error) { return sim.Instance[float64]{Problem: problem}, nil }
			var got [][]float64
			for i := range g.Iterates {
				e.Rounds = i + 1
				r, err := sim.RunInstances(t.Context(), e, instance, nil)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, r.Final[0])
			}
			g.compare(t, got)
		})
	}
	if files != 3 {
		t.Errorf("%d files, want 3", files)
	}
}
