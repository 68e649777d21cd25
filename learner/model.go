package learner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Model computes the risk of an architecture and its gradient. The parameters stay with the caller, as one flat vector;
// the model owns only scratch memory, which grows with the largest batch up to 32 rows.
type Model[T Float] struct {
	arch   Architecture
	params int
	layers []layer
	loss   Loss[T]
	k      kernel[T]
	short  bool // a linear model whose rows are too short for assembly: see rowStep

	rows  int   // rows the scratch below holds
	act   [][]T // per layer [rows,out]: activations; of the last layer the raw outputs
	delta [][]T // per layer [rows,out]: derivatives of a sample's risk by the layer's sums
	grad  []T   // for steps on more rows than one block
}

// layer says where the views of one layer begin in the flat vector.
type layer struct {
	in, out      int
	weight, bias int // bias is −1 if there is none
}

// NewModel prepares a model; the error is that of [Architecture.Validate].
func NewModel[T Float](a Architecture) (*Model[T], error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	a.Hidden = slices.Clone(a.Hidden)
	m := &Model[T]{arch: a, params: a.Params(), k: nativeKernel[T](), loss: losses[T]()[a.Risk](a)}
	m.short = len(a.Hidden) == 0 && a.Outputs == 1 && a.Inputs < assemblyFrom
	offset, in := 0, a.Inputs
	for i := range len(a.Hidden) + 1 {
		l := layer{in: in, out: a.width(i), weight: offset, bias: -1}
		offset += l.in * l.out
		if a.Bias {
			l.bias = offset
			offset += l.out
		}
		m.layers = append(m.layers, l)
		in = l.out
	}
	m.act = make([][]T, len(m.layers))
	m.delta = make([][]T, len(m.layers))
	return m, nil
}

// Architecture is what the model was made of.
func (m *Model[T]) Architecture() Architecture { return m.arch }

// Init sets w, of length d, to the start: zero, but for the weights of hidden layers, which are drawn from Glorot's
// uniform distribution, ±√(6/(in+out)); equal hidden units would stay equal for ever. rng may be nil without hidden
// layers.
func (m *Model[T]) Init(w []T, rng *rand.Rand) {
	m.checkVector("w", w)
	clear(w)
	for _, l := range m.layers[:len(m.layers)-1] {
		bound := math.Sqrt(6 / float64(l.in+l.out))
		for i := range l.in * l.out {
			w[l.weight+i] = T(bound * (2*rng.Float64() - 1))
		}
	}
}

// Gradient overwrites grad with the gradient at w of the mean risk over the batch, +ρw included, and returns that risk,
// (ρ/2)‖w‖² included. grad and w have length d and do not overlap. An empty batch has risk NaN.
func (m *Model[T]) Gradient(grad, w []T, b Batch[T]) float64 {
	m.checkVector("grad", grad)
	m.check(w, b)
	clear(grad)
	n := len(b.Y)
	sum := 0.0
	for from := 0; from < n; from += blockRows {
		block := m.block(b, from)
		sum += m.backward(w, block)
		m.addGradient(grad, block, 1/float64(n))
	}
	if m.arch.Ridge > 0 {
		m.k.axpy(T(m.arch.Ridge), w, grad)
	}
	return sum/float64(n) + m.ridge(w)
}

// Risk is the mean risk at w over the batch, (ρ/2)‖w‖² included. An empty batch has risk NaN.
func (m *Model[T]) Risk(w []T, b Batch[T]) float64 {
	m.check(w, b)
	sum := 0.0
	for from := 0; from < len(b.Y); from += blockRows {
		block := m.block(b, from)
		z := m.forward(w, block.X, len(block.Y))
		for s, y := range block.Y {
			sum += m.loss.Risk(nil, z[s*m.arch.Outputs:][:m.arch.Outputs], y)
		}
	}
	return sum/float64(len(b.Y)) + m.ridge(w)
}

// ridge is (ρ/2)‖w‖².
func (m *Model[T]) ridge(w []T) float64 {
	if m.arch.Ridge == 0 {
		return 0
	}
	return 0.5 * m.arch.Ridge * m.k.sumq(w)
}

func (m *Model[T]) check(w []T, b Batch[T]) {
	m.checkVector("w", w)
	if len(b.X) != len(b.Y)*m.arch.Inputs {
		panic(fmt.Sprintf("learner: a batch of %d targets and %d features for a model with %d inputs",
			len(b.Y), len(b.X), m.arch.Inputs))
	}
}

func (m *Model[T]) checkVector(name string, v []T) {
	if len(v) != m.params {
		panic(fmt.Sprintf("learner: %s has length %d for a model with %d parameters", name, len(v), m.params))
	}
}
