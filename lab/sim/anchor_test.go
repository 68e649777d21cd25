package sim_test

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/spec"
)

// TestAnchors checks the anchor of the proximal term, which attracts the model to the last model of the server. The
// anchor is the model at the start of the round in fedavg, and the model of the last server iteration in feddec. The
// test compares with a manual computation of one agent's exact gradients.
func TestAnchors(t *testing.T) {
	const mu, pull, every = 0.1, 1.5, 4
	for _, algorithm := range []spec.Algorithm{spec.FedAvg, spec.FedDec} {
		e := sim.Default()
		e.Algorithm, e.Agents, e.Participants.Count, e.Runs, e.Rounds = algorithm, 1, 1, 1, 14
		e.Data = data.DefaultSpec()
		e.Data.Kind, e.Data.Eigenvalues, e.Data.Centres = data.KindQuadratics, []float64{1, 3}, [][]float64{{2, -1}}
		e.BatchSize, e.Proximal, e.StepSize.Constant, e.StepSize.NormalizesStepSize = sim.Each(0), pull, mu, false
		p, err := data.Build[float64](e.Data, 1, nil, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		steps, serves := e.Rounds-1, func(step int) bool { return (step+1)%every == 0 }
		if e.Mixing.ServerEvery = every; algorithm == spec.FedAvg {
			e.LocalSteps = sim.Each(every)
			steps, serves = e.Rounds*every, func(step int) bool { return step%every == 0 }
		}
		w, grad, anchor := make([]float64, 2), make([]float64, 2), make([]float64, 2)
		for step := 1; step <= steps; step++ {
			p.Objective.Gradient(grad, w)
			for j := range w {
				w[j] -= mu * (grad[j] + pull*(w[j]-anchor[j]))
			}
			if serves(step) {
				copy(anchor, w)
			}
		}
		if got := run(t, e).Final[0]; math.Hypot(got[0]-w[0], got[1]-w[1]) > 1e-12 || w[0] == 0 {
			t.Errorf("%s: the model is %v, want %v", algorithm, got, w)
		}
	}
}
