package learner

import (
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
)

// Objective is a kind of model and its risk: which vectors there are, which one training begins with, and what the risk
// Q of a row is at w and how it changes with w. A [Model] makes everything else of it: means over any number of rows,
// the ridge, local steps, corrections.
//
// docs/ARCHITECTURE.md lists the steps to add a kind of model. Its entry in objectiveConstructorByKind and its cases in
// conformance_test.go put it through the suite that all kinds pass.
//
// Vectors w and dst have length d, the elements of Layout. A block b has 1 to 32 rows of [Architecture].Inputs
// features, and a target each, which a kind without a target passes over.
type Objective[T Float] interface {
	// Layout lists the tensors in the order in which they fill the vector, with no element between them or left over. A
	// name is "layer.tensor", or "layer" alone: Frozen names either.
	Layout() []TensorSpec
	// InitParameters sets w, which is zero, to the start of training. What it draws from rng depends on the layout
	// alone, and comes in the order of the vector; it draws nothing if the start is zero, and rng may be nil then.
	InitParameters(w []T, rng *rand.Rand)
	// AddRowRisks returns sum + Q(w) + Q(w) + … over the rows of a block, added in their order. A NaN in w reaches it.
	AddRowRisks(sum float64, w []T, b Batch[T]) float64
	// Backward returns Risk(0, w, b), to the bit, and keeps of the block what AddGradient needs.
	Backward(w []T, b Batch[T]) float64
	// AddGradient adds scale·Σ ∇Q to dst, where b is the block that Backward was called with last and the gradient is
	// that at its w. It reads no parameters: dst may be w itself, so that a local step needs no vector of its own.
	AddGradient(dst []T, b Batch[T], scale float64)
	// MapLabels checks targets that come after those seen, and brings them into the form of the risk, in place: see
	// [Loss.MapLabels].
	MapLabels(y []T, seen *LabelHistory) error
	// RowOutputs returns the outputs at w of the rows of a block, [rows,outputs], as the risk sees them. They are valid
	// until the next call of any method.
	RowOutputs(w []T, b Batch[T]) []T
	// SumScores returns how well w does on all samples.
	SumScores(w []T, s *Samples[T]) ScoreSums
	// RestandardizeParameters rewrites w for samples that are standardised by to in place of from, as far as there are
	// biases to take up other means, and reports whether there are means to take up: see [Model.Restandardize]. An
	// error says why no w does what it did before; w counts for nothing then.
	RestandardizeParameters(w []T, from, to Standardization) (moved bool, err error)
}

// objectiveConstructorByKind is the table of the kinds. The fields of an architecture that gets there are within their
// bounds; an error is of what the kind cannot do with them.
func objectiveConstructorByKind[T Float]() map[spec.ModelKind]func(Architecture) (Objective[T], error) {
	return map[spec.ModelKind]func(Architecture) (Objective[T], error){
		spec.ModelLinear:   newLinearModel[T],
		spec.ModelLogistic: newLinearModel[T],
		spec.ModelSoftmax:  newNetwork[T],
		spec.ModelMLP:      newNetwork[T],

		spec.ModelAutoencoder: newAutoencoder[T],
		spec.ModelConv1D:      newConv1D[T],
	}
}

// newObjective returns what a valid architecture describes.
func newObjective[T Float](a Architecture) Objective[T] {
	if a.Kind == spec.ModelExternal {
		return externalObjective[T](a.ExternalTensors)
	}
	o, err := objectiveConstructorByKind[T]()[a.resolvedKind()](a)
	if err != nil {
		panic("learner: " + err.Error())
	}
	return o
}
