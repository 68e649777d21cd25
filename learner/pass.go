package learner

import (
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// blockRows is the number of rows that go through the network together: enough that a row of weights is used from
// the nearest cache many times, and few enough that the scratch memory stays small beside the model.
const blockRows = 32

// block is the view of at most blockRows rows of b, from row from on.
func (m *Model[T]) block(b Batch[T], from int) Batch[T] {
	to := min(from+blockRows, len(b.Y))
	return Batch[T]{X: b.X[from*m.arch.Inputs : to*m.arch.Inputs], Y: b.Y[from:to]}
}

// reserve makes room for the activations of n rows.
func (m *Model[T]) reserve(n int) {
	if n <= m.rows {
		return
	}
	m.rows = n
	for i, l := range m.layers {
		m.act[i] = make([]T, n*l.out)
		m.delta[i] = make([]T, n*l.out)
	}
}

// forward runs n ≤ blockRows rows of x through the network and returns the raw outputs, [n,Outputs]. They and the
// activations stay in the scratch memory.
func (m *Model[T]) forward(w, x []T, n int) []T {
	m.reserve(n)
	for i, l := range m.layers {
		out := m.act[i][:n*l.out]
		for o := range l.out {
			row := w[l.weight+o*l.in:][:l.in]
			var bias T
			if l.bias >= 0 {
				bias = w[l.bias+o]
			}
			m.k.dots(out[o:], l.out, bias, row, x[:n*l.in])
		}
		if i < len(m.layers)-1 {
			activate(m.arch.Activation, out)
		}
		x = out
	}
	return x
}

// backward runs a block forward, leaves the derivatives by the sums of every layer in the scratch memory, and returns
// the sum of the samples' risks. It only reads w.
func (m *Model[T]) backward(w []T, b Batch[T]) float64 {
	n := len(b.Y)
	z := m.forward(w, b.X, n)
	last := len(m.layers) - 1
	outputs := m.arch.Outputs
	sum := 0.0
	for s, y := range b.Y {
		sum += m.loss.Risk(m.delta[last][s*outputs:][:outputs], z[s*outputs:][:outputs], y)
	}
	for i := last; i > 0; i-- {
		l := m.layers[i]
		above, below := m.delta[i], m.delta[i-1][:n*l.in]
		clear(below)
		for o := range l.out {
			row := w[l.weight+o*l.in:][:l.in]
			for s := range n {
				m.k.axpy(above[s*l.out+o], row, below[s*l.in:][:l.in])
			}
		}
		deactivate(m.arch.Activation, below, m.act[i-1])
	}
	return sum
}

// addGradient adds scale × the sum of the samples' gradients to dst, from what backward left of the same block. It
// does not read w: dst may be w itself, which is how a local step saves a pass over a gradient vector.
func (m *Model[T]) addGradient(dst []T, b Batch[T], scale float64) {
	x := b.X
	for i, l := range m.layers {
		for o := range l.out {
			row := dst[l.weight+o*l.in:][:l.in]
			sum := m.k.combine(row, T(scale), m.delta[i][o:], l.out, x[:len(b.Y)*l.in])
			if l.bias >= 0 {
				dst[l.bias+o] += sum
			}
		}
		x = m.act[i]
	}
}

// activate applies the activation in place. A NaN stays a NaN, so that it reaches the risk.
func activate[T Float](a spec.Activation, v []T) {
	switch a {
	case spec.ActivationTanh:
		for i, s := range v {
			v[i] = T(math.Tanh(float64(s)))
		}
	case spec.ActivationReLU:
		for i, s := range v {
			if s < 0 {
				v[i] = 0
			}
		}
	}
}

// deactivate multiplies delta by the derivative of the activation, given its values act; relu has slope 0 at 0.
func deactivate[T Float](a spec.Activation, delta, act []T) {
	switch a {
	case spec.ActivationTanh:
		for i := range delta {
			delta[i] *= 1 - T(act[i]*act[i])
		}
	case spec.ActivationReLU:
		for i := range delta {
			if act[i] <= 0 {
				delta[i] = 0
			}
		}
	}
}

func finite(v float64) bool { return v-v == 0 }
