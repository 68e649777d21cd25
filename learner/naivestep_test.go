package learner

import (
	"math"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
)

// naiveStep returns the reference for the benchmarks: hand-written plain loops for two kinds of models, relu networks
// with biases and linear models without a bias. The loops use one gradient vector and do not allocate memory.
func naiveStep(a Architecture) func(w []float32, s *Samples[float32], batch int, mu float32, rng *rand.Rand) {
	if a.Risk == spec.LossSquared {
		return naiveLinearStep(a)
	}
	hidden := 0
	if len(a.HiddenUnits) == 1 {
		hidden = a.HiddenUnits[0]
	}
	grad := make([]float32, a.ParameterCount())
	h, dh := make([]float32, hidden), make([]float32, hidden)
	z := make([]float32, a.Outputs)
	return func(w []float32, s *Samples[float32], batch int, mu float32, rng *rand.Rand) {
		clear(grad)
		for range batch {
			x, y := s.Row(rng.IntN(s.Len()))
			in, w2, g2 := x, w, grad
			if hidden > 0 {
				dense(h, w, x)
				for j := range h {
					h[j] = max(h[j], 0)
				}
				in, w2, g2 = h, w[hidden*len(x)+hidden:], grad[hidden*len(x)+hidden:]
			}
			dense(z, w2, in)
			naiveSoftmax(z, int(y))
			if hidden > 0 {
				for j := range dh {
					dh[j] = 0
					for o := range z {
						dh[j] += z[o] * w2[o*hidden+j]
					}
					if h[j] <= 0 {
						dh[j] = 0
					}
				}
				outer(grad, dh, x)
			}
			outer(g2, z, in)
		}
		for i := range w {
			w[i] -= mu / float32(batch) * grad[i]
		}
	}
}

func naiveLinearStep(a Architecture) func(w []float32, s *Samples[float32], batch int, mu float32, rng *rand.Rand) {
	grad := make([]float32, a.Inputs)
	return func(w []float32, s *Samples[float32], batch int, mu float32, rng *rand.Rand) {
		clear(grad)
		for range batch {
			x, y := s.Row(rng.IntN(s.Len()))
			var z float32
			for i := range x {
				z += w[i] * x[i]
			}
			for i := range x {
				grad[i] += (z - y) * x[i]
			}
		}
		for i := range w {
			w[i] -= mu / float32(batch) * grad[i]
		}
	}
}

func dense(out, w, x []float32) {
	for o := range out {
		sum := w[len(out)*len(x)+o]
		for i := range x {
			sum += w[o*len(x)+i] * x[i]
		}
		out[o] = sum
	}
}

func outer(grad, delta, x []float32) {
	for o := range delta {
		for i := range x {
			grad[o*len(x)+i] += delta[o] * x[i]
		}
		grad[len(delta)*len(x)+o] += delta[o]
	}
}

func naiveSoftmax(z []float32, class int) {
	top, sum := z[0], float32(0)
	for _, v := range z {
		top = max(top, v)
	}
	for c := range z {
		z[c] = float32(math.Exp(float64(z[c] - top)))
		sum += z[c]
	}
	for c := range z {
		z[c] /= sum
	}
	z[class]--
}
