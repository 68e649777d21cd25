package learner

import (
	"math/rand/v2"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func newRNG(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func newModel[T Float](t testing.TB, a Architecture) *Model[T] {
	t.Helper()
	m, err := NewModel[T](a)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// randomSamples draws standard normal features and targets that are valid for the loss.
func randomSamples[T Float](a Architecture, n int, rng *rand.Rand) *Samples[T] {
	x, y := make([]T, n*a.Inputs), make([]T, n)
	for i := range x {
		x[i] = T(rng.NormFloat64())
	}
	for i := range y {
		if !a.HasTarget() {
			break
		}
		switch a.Risk {
		case spec.LossSquared, spec.LossFullSquared, spec.LossHuber:
			y[i] = T(rng.NormFloat64())
		case spec.LossLogistic:
			y[i] = T(2*rng.IntN(2) - 1)
		case spec.LossSoftmax:
			y[i] = T(rng.IntN(a.Outputs))
		}
	}
	return NewSamples(a.Inputs, x, y)
}

// randomVector draws a vector of normally distributed numbers with the given standard deviation.
func randomVector[T Float](n int, scale float64, rng *rand.Rand) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = T(scale * rng.NormFloat64())
	}
	return v
}

// architectures returns all combinations of loss, depth, activation, bias and ridge, small enough for finite
// differences.
func architectures() []Architecture {
	var all []Architecture
	for _, risk := range []spec.LossKind{spec.LossSquared, spec.LossLogistic, spec.LossSoftmax, spec.LossFullSquared} {
		outputs := 1
		if risk == spec.LossSoftmax {
			outputs = 3
		}
		for _, hidden := range [][]int{nil, {5}, {6, 4}} {
			for _, activation := range []spec.Activation{spec.ActivationTanh, spec.ActivationReLU,
				spec.ActivationIdentity} {
				if hidden == nil && activation != spec.ActivationTanh {
					continue
				}
				for _, bias := range []bool{false, true} {
					for _, ridge := range []float64{0, 0.3} {
						all = append(all, Architecture{Inputs: 4, HiddenUnits: hidden, Outputs: outputs,
							Activation: activation, Risk: risk, HasBias: bias, Ridge: ridge})
					}
				}
			}
		}
	}
	return all
}
