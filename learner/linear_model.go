package learner

import (
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
)

// linearModel implements linear and logistic regression. For features h and parameters w its output is z = hᵀw + b. The
// optional bias b is the last element of the parameter vector.
type linearModel[T Float] struct {
	layer             layer
	risk              spec.LossKind
	loss              Loss[T]
	kernels           vectorKernels[T]
	outputs           []T // output of the model for each row in a block
	outputDerivatives []T // derivatives of the rows' risks with respect to outputs
	hasSquaredLoss    bool
}

func newLinearModel[T Float](a Architecture) (Objective[T], error) {
	return &linearModel[T]{layer: layersOfArchitecture(a)[0], risk: a.Risk, loss: newLoss[T](a),
		kernels:        newLoopKernels[T](),
		hasSquaredLoss: a.Risk == spec.LossSquared}, checkLayers(a)
}

// Layout implements Objective. The tensors are "layer0.weight" [1, inputs] and, if the model has a bias, "layer0.bias"
// [1].
func (l *linearModel[T]) Layout() []TensorSpec { return tensorLayout(l.layer) }

// InitParameters implements Objective. It leaves all parameters at zero.
func (l *linearModel[T]) InitParameters([]T, *rand.Rand) {}

// reserveScratch allocates scratch memory for n rows.
func (l *linearModel[T]) reserveScratch(n int) {
	if n > len(l.outputs) {
		l.outputs, l.outputDerivatives = make([]T, n), make([]T, n)
	}
}

// forward returns the outputs of a block, which remain in the scratch memory.
func (l *linearModel[T]) forward(w []T, b Batch[T]) []T {
	l.reserveScratch(len(b.Y))
	var bias T
	if l.layer.biasOffset >= 0 {
		bias = w[l.layer.biasOffset]
	}
	l.kernels.dotEachRow(l.outputs, 1, bias, w[:l.layer.in], b.X)
	return l.outputs[:len(b.Y)]
}

// AddRowRisks implements Objective.
func (l *linearModel[T]) AddRowRisks(sum float64, w []T, b Batch[T]) float64 {
	return addRisks(sum, l.loss, nil, l.forward(w, b), b.Y)
}

// Backward implements Objective.
func (l *linearModel[T]) Backward(w []T, b Batch[T]) float64 {
	z := l.forward(w, b)
	return addRisks(0, l.loss, l.outputDerivatives, z, b.Y)
}

// AddGradient implements Objective.
func (l *linearModel[T]) AddGradient(dst []T, b Batch[T], scale float64) {
	sum := l.kernels.addNonzeroRows(dst[:l.layer.in], T(scale), l.outputDerivatives, 1, b.X)
	if l.layer.biasOffset >= 0 {
		dst[l.layer.biasOffset] += sum
	}
}

// MapLabels implements Objective.
func (l *linearModel[T]) MapLabels(y []T, seen *LabelHistory) error {
	return l.loss.MapLabels(y, 1, seen)
}

// RowOutputs implements Objective.
func (l *linearModel[T]) RowOutputs(w []T, b Batch[T]) []T { return l.forward(w, b) }

// SumScores implements Objective.
func (l *linearModel[T]) SumScores(w []T, s *Samples[T]) ScoreSums {
	return tallyScores(l.loss, s, rowBlockSize, func(b Batch[T]) []T { return l.forward(w, b) })
}

// RestandardizeParameters implements Objective.
func (l *linearModel[T]) RestandardizeParameters(w []T, from, to Standardization) (bool, error) {
	return restandardizeLayers(w, l.layer, l.layer, l.risk, from, to), nil
}

// hasShortRows reports whether rows are so short that assembly loops would not be faster than loops in Go.
func (l *linearModel[T]) hasShortRows() bool { return l.layer.in < minAssemblyLength }

// takeShortRowStep takes a local step on one short row, for example in a linear regression with 25 features. It is much
// faster than the general step [Model.takeStep], and its result is bitwise identical.
func (l *linearModel[T]) takeShortRowStep(w, x []T, y T, mu, ridge float64) float64 {
	z := dotLoop(w[:len(x)], x)
	if l.layer.biasOffset >= 0 {
		z += w[len(x)]
	}
	miss := z - y
	risk := 0.5 * float64(miss) * float64(miss)
	if !l.hasSquaredLoss {
		l.reserveScratch(1)
		l.outputs[0] = z
		risk = l.loss.Risk(l.outputDerivatives[:1], l.outputs[:1], y)
		miss = l.outputDerivatives[0]
	}
	if !isFinite(risk) {
		return risk
	}
	if ridge > 0 {
		l.kernels.axpy(T(-mu*ridge), w, w)
	}
	c := T(T(-mu) * miss)
	if l.layer.biasOffset >= 0 {
		w[len(x)] += c
	}
	w = w[:len(x)]
	for i, v := range x {
		w[i] += T(c * v)
	}
	return risk
}
