package learner

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/spec"
)

// Float is the element type of parameters and samples: float32 in the daemons, float64 in the experiments.
type Float interface{ ~float32 | ~float64 }

// Bounds of an architecture. All sizes computed from received values fit into a 32-bit int.
const (
	maxWidth        = 65536   // maximum number of inputs, outputs, and units of one hidden layer
	maxHiddenLayers = 8       // maximum number of hidden layers
	maxParams       = 1 << 28 // maximum number of parameters, which need 1 GiB as float32
)

// TensorSpec describes a named tensor, a view of the flat parameter vector in row-major order.
type TensorSpec struct {
	Name  string
	Shape []int
}

// Architecture describes a model of any kind. The layered kinds have weights in [out,in] order with an activation
// function between layers. Without hidden layers they are linear, logistic or softmax regression. The bilinear network
// in equations (40)–(41) of the paper on second-order guarantees ("2nd-order") has the risk ln(1+exp(−γ w₁ᵀW₂h)) +
// (ρ/2)(‖w₁‖²+‖W₂‖²) with a 3×5 matrix W₂. It is the architecture
//
//	Architecture{Inputs: 5, HiddenUnits: []int{3}, Outputs: 1, Activation: spec.ActivationIdentity,
//		Risk: spec.LossLogistic, Ridge: ρ}
//
// with W₂ before w₁ in the parameter vector. At zero all gradients of this network are exactly zero, so that gradient
// descent cannot leave this saddle point without noise. In the paper, equation (42) has the wrong sign of the ridge
// term: the gradient of the ridge penalty is +ρw.
type Architecture struct {
	Kind   spec.ModelKind
	Inputs int
	// Convolution describes the filter layers of a conv1d model, which precede the hidden layers. It is zero for other
	// kinds.
	Convolution spec.Convolution
	HiddenUnits []int // number of units of each hidden layer, from the first to the last
	Outputs     int   // number of outputs: the number of classes for a softmax, otherwise 1
	// activation function of hidden layers and filter layers; may be empty without such layers
	Activation spec.Activation
	Risk       spec.LossKind
	HasBias    bool    // whether every layer has a bias
	HuberDelta float64 // threshold δ of the Huber loss, above which residuals are outliers; 0 for other losses
	// factor ρ of the ridge penalty (ρ/2)‖w‖² on all parameters w, including biases (lecture, equation (15))
	Ridge float64
	// ExternalTensors are the tensors of an external model; nil for other kinds. An external model has no layers, one
	// output and the squared loss.
	ExternalTensors []TensorSpec
}

// Validate returns an error for every field that is out of bounds.
func (a Architecture) Validate() error {
	if a.Kind == spec.ModelExternal {
		return a.validateExternal()
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("architecture: "+format, args...)) }
	width := func(field string, n int) {
		if n < 1 || n > maxWidth {
			bad("%s is %d, but must be between 1 and %d", field, n, maxWidth)
		}
	}
	width("inputs", a.Inputs)
	if err := a.resolvedKind().Validate(); err != nil {
		bad("kind: %w", err)
	}
	if len(a.HiddenUnits) > maxHiddenLayers {
		bad("hidden has %d layers, but at most %d are allowed", len(a.HiddenUnits), maxHiddenLayers)
	}
	for i, n := range a.HiddenUnits {
		width(fmt.Sprintf("hidden[%d]", i), n)
	}
	var found spec.ProblemList
	a.Convolution.Check(&found, "architecture", a.Kind == spec.ModelConv1D, len(a.HiddenUnits))
	if err := found.Err(); err != nil {
		errs = append(errs, err)
	}
	width("outputs", a.Outputs)
	switch {
	case a.Risk.Validate() != nil:
		bad("risk: %w", a.Risk.Validate())
	case a.Risk == spec.LossSoftmax && a.Outputs < 2:
		bad("outputs is %d, but the softmax risk requires one output per class and at least 2", a.Outputs)
	case a.Risk != spec.LossSoftmax && a.Outputs != 1:
		bad("outputs is %d, but the %v risk requires 1", a.Outputs, a.Risk)
	}
	if err := a.Activation.Validate(); err != nil && (a.LayerCount() > 1 || a.Activation != "") {
		bad("activation: %w", err)
	}
	if isHuber := a.Risk == spec.LossHuber; isHuber != (a.HuberDelta > 0) || math.IsInf(a.HuberDelta, 1) ||
		a.HuberDelta != a.HuberDelta {
		bad("the delta of the huber risk is %v, but must be finite and positive with the huber risk and 0 with other "+
			"risks",
			a.HuberDelta)
	}
	if !(a.Ridge >= 0) || math.IsInf(a.Ridge, 1) {
		bad("ridge is %v, but must be finite and not negative", a.Ridge)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if _, err := objectiveConstructorByKind[float32]()[a.resolvedKind()](a); err != nil {
		return err
	}
	if n := a.parameterCountInt64(); n > maxParams {
		return fmt.Errorf("architecture: %d parameters exceed the limit of %d", n, maxParams)
	}
	return nil
}

// resolvedKind returns the kind of the model. If Kind is empty, it returns the kind that follows from the layers.
func (a Architecture) resolvedKind() spec.ModelKind {
	return cmp.Or(a.Kind, spec.ModelKindFromLayers(len(a.HiddenUnits), a.Risk))
}

// HasTarget reports whether the model predicts a target column. If it does not, the targets of rows are ignored.
func (a Architecture) HasTarget() bool { return a.resolvedKind().HasTarget() }

// LayerCount returns the number of layers with weights.
func (a Architecture) LayerCount() int {
	return len(a.Convolution.FiltersPerLayer) + len(a.HiddenUnits) + 1
}

// UnitsByLayer returns the number of units of each layer, from the first hidden layer to the last.
func (a Architecture) UnitsByLayer() []int {
	last := a.Outputs
	if a.resolvedKind() == spec.ModelAutoencoder {
		last = a.Inputs
	}
	return append(slices.Clone(a.HiddenUnits), last)
}

// Layout returns the tensors of a valid architecture in the order of the flat vector: see [Objective.Layout].
func (a Architecture) Layout() []TensorSpec { return newObjective[float32](a).Layout() }

// ParameterCount returns the number d of parameters, which is the length of the flat vector of a valid architecture.
func (a Architecture) ParameterCount() int { return int(a.parameterCountInt64()) }

// parameterCountInt64 returns ParameterCount as a 64-bit number, to avoid an overflow of a 32-bit int.
func (a Architecture) parameterCountInt64() (n int64) {
	for _, t := range a.Layout() {
		n += t.elementCount()
	}
	return n
}

func (t TensorSpec) elementCount() int64 {
	n := int64(1)
	for _, s := range t.Shape {
		n *= int64(s)
	}
	return n
}

// LastLayerName is a name for the last layer in a list of tensor names. It selects the tensors after the last
// activation.
const LastLayerName = "last"

// TensorRanges returns the ranges of elements that the named tensors have in the parameter vector of a valid
// architecture. A name is the name of a tensor ("layer0.weight"), the name of a layer ("layer0"), or LastLayerName.
// Unknown names are ignored, since spec.Model.Check has rejected them.
func (a Architecture) TensorRanges(names []string) (all []ElementRange) {
	at, layout := 0, a.Layout()
	last, _, _ := strings.Cut(layout[len(layout)-1].Name, ".")
	for _, t := range layout {
		n := int(t.elementCount())
		layer, _, _ := strings.Cut(t.Name, ".")
		if slices.Contains(names, t.Name) || slices.Contains(names, layer) ||
			layer == last && slices.Contains(names, LastLayerName) {
			all = append(all, ElementRange{at, at + n})
		}
		at += n
	}
	return all
}
