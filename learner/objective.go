package learner

import (
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
)

// Objective is a kind of model with its loss Q. It defines the parameter vector, its initial values, and the loss of a
// row with its gradient. [Model] adds the mean over rows, the ridge penalty, and local steps.
//
// docs/ARCHITECTURE.md explains how to add a kind of model. Each kind needs an entry in objectiveConstructorByKind and
// cases in conformance_test.go, which apply the common tests to it.
//
// The vectors w and dst have length d, the number of elements of Layout. A block b has 1 to 32 rows of
// [Architecture].Inputs features, each with a target.
type Objective[T Float] interface {
	// Layout returns the tensors in their order in the parameter vector, without gaps. Their names have the form
	// "layer.tensor" or "layer". Options such as frozen may refer to either form.
	Layout() []TensorSpec
	// InitParameters sets w, which must be zero, to the initial parameters. The numbers drawn from rng depend only on
	// the layout. rng may be nil if the initial parameters are zero.
	InitParameters(w []T, rng *rand.Rand)
	// AddRowRisks returns sum plus the losses of all rows in the block b, added in order. A NaN in the parameters w
	// makes the result NaN.
	AddRowRisks(sum float64, w []T, b Batch[T]) float64
	// Backward returns the same value as AddRowRisks(0, w, b) and stores the derivatives that AddGradient needs.
	Backward(w []T, b Batch[T]) float64
	// AddGradient adds scale times the gradient Σ ∇Q of the block of the last Backward call to dst. It reads no
	// parameters, so dst may be w itself, and a local step needs no additional vector.
	AddGradient(dst []T, b Batch[T], scale float64)
	// MapLabels validates targets and converts them in place to the form that the loss uses: see [Loss.MapLabels]. The
	// parameter seen describes the preceding targets.
	MapLabels(y []T, seen *LabelHistory) error
	// RowOutputs returns the outputs of the model for the rows of a block, in the shape [rows,outputs]. The result is
	// valid until the next call of any method.
	RowOutputs(w []T, b Batch[T]) []T
	// SumScores returns the sums from which the quality of the parameters w on the samples s is computed.
	SumScores(w []T, s *Samples[T]) ScoreSums
	// RestandardizeParameters converts the parameters w from samples that are standardised by from to samples that are
	// standardised by to. The result moved is true if the means change, which requires a model with biases. If no
	// equivalent parameters exist, it returns an error and w is invalid.
	RestandardizeParameters(w []T, from, to Standardization) (moved bool, err error)
}

// objectiveConstructorByKind returns the constructor of the objective of each kind of model. A constructor is called
// with an architecture whose fields are within bounds, and returns an error if the kind does not support a combination
// of fields.
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

// newObjective returns the objective of a valid architecture.
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
