package learner

import (
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// naive is a simple reference implementation of Model. It uses plain loops, processes one sample at a time, and ignores
// overflow of exponentials.
type naive[T Float] struct{ a Architecture }

func (n naive[T]) widths() []int {
	return append(append([]int{n.a.Inputs}, n.a.HiddenUnits...), n.a.Outputs)
}

// views splits a flat parameter vector into weights[l][o][i] and biases[l][o] for layer l, output o and input i.
func (n naive[T]) views(flat []T) (weights [][][]T, biases [][]T) {
	widths := n.widths()
	for l := 1; l < len(widths); l++ {
		var rows [][]T
		for o := 0; o < widths[l]; o++ {
			rows = append(rows, flat[:widths[l-1]])
			flat = flat[widths[l-1]:]
		}
		weights = append(weights, rows)
		if n.a.HasBias {
			biases = append(biases, flat[:widths[l]])
			flat = flat[widths[l]:]
		} else {
			biases = append(biases, make([]T, widths[l]))
		}
	}
	return weights, biases
}

// gradient adds the gradient of one sample's risk, divided by count, to grad, and returns the sample's risk.
func (n naive[T]) gradient(grad, w, x []T, y T, count int) float64 {
	weights, biases := n.views(w)
	values := [][]T{x}
	for l := range weights {
		var out []T
		for o := range weights[l] {
			sum := biases[l][o]
			for i := range values[l] {
				sum += weights[l][o][i] * values[l][i]
			}
			if l < len(weights)-1 {
				if n.a.Activation == spec.ActivationTanh {
					sum = T(math.Tanh(float64(sum)))
				} else if n.a.Activation == spec.ActivationReLU && sum < 0 {
					sum = 0
				}
			}
			out = append(out, sum)
		}
		values = append(values, out)
	}
	risk, delta := n.loss(values[len(values)-1], y)
	gradWeights, gradBiases := n.views(grad)
	for l := len(weights) - 1; l >= 0; l-- {
		below := make([]T, len(values[l]))
		for o := range weights[l] {
			for i := range values[l] {
				gradWeights[l][o][i] += delta[o] * values[l][i] / T(count)
				below[i] += delta[o] * weights[l][o][i]
			}
			gradBiases[l][o] += delta[o] / T(count)
		}
		for i, v := range values[l] {
			if n.a.Activation == spec.ActivationTanh {
				below[i] *= 1 - v*v
			} else if n.a.Activation == spec.ActivationReLU && v <= 0 {
				below[i] = 0
			}
		}
		delta = below
	}
	return risk
}

func (n naive[T]) loss(z []T, y T) (risk float64, delta []T) {
	switch n.a.Risk {
	case spec.LossSquared:
		return float64((y - z[0]) * (y - z[0]) / 2), []T{z[0] - y}
	case spec.LossFullSquared:
		return float64((y - z[0]) * (y - z[0])), []T{2 * (z[0] - y)}
	case spec.LossLogistic:
		e := math.Exp(-float64(y * z[0]))
		return math.Log(1 + e), []T{T(-float64(y) * e / (1 + e))}
	}
	sum := 0.0
	for _, v := range z {
		sum += math.Exp(float64(v))
	}
	for c, v := range z {
		p := math.Exp(float64(v)) / sum
		if c == int(y) {
			risk = -math.Log(p)
			p--
		}
		delta = append(delta, T(p))
	}
	return risk, delta
}

// meanGradient computes the gradient of the mean risk, as Model.Gradient does.
func (n naive[T]) meanGradient(grad, w []T, b Batch[T]) float64 {
	for i := range grad {
		grad[i] = T(n.a.Ridge) * w[i]
	}
	risk := 0.0
	for s, y := range b.Y {
		risk += n.gradient(grad, w, b.X[s*n.a.Inputs:(s+1)*n.a.Inputs], y, len(b.Y)) / float64(len(b.Y))
	}
	for _, v := range w {
		risk += n.a.Ridge / 2 * float64(v) * float64(v)
	}
	return risk
}
