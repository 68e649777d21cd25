package learner

import (
	"errors"
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// Float is the type of parameters and samples: float32 in the daemons, float64 in the experiments.
type Float interface{ ~float32 | ~float64 }

// The bounds of an architecture. They keep every size computed from a received one inside a 32-bit int.
const (
	maxWidth  = 65536   // inputs, outputs and units of one hidden layer
	maxHidden = 8       // hidden layers
	maxParams = 1 << 28 // 1 GiB of float32
)

// Tensor is one named view of the flat parameter vector, row-major.
type Tensor struct {
	Name  string
	Shape []int
}

// Architecture describes a model: layers of weights in [out,in] order with an activation between them. Linear, logistic
// and softmax regression are the networks without hidden layers. The bilinear network ln(1+exp(−γ w₁ᵀW₂h)) +
// (ρ/2)(‖w₁‖²+‖W₂‖²) of 2nd-order (40)–(41), W₂ ∈ R^{3×5}, is
//
//	Architecture{Inputs: 5, Hidden: []int{3}, Outputs: 1, Activation: Identity, Risk: Logistic, Ridge: ρ}
//
// with W₂ first in its vector and then w₁. At zero all its gradients are exactly zero, so that nothing leaves that
// saddle unless noise is added. The printed (42) has the sign of the ridge wrong: its gradient is +ρw.
type Architecture struct {
	Inputs     int
	Hidden     []int           // units of each hidden layer, from the input on
	Outputs    int             // the number of classes for a softmax, else 1
	Activation spec.Activation // of hidden layers; may be empty without any
	Risk       spec.Risk
	Bias       bool    // every layer has a bias
	HuberDelta float64 // δ of the huber risk; else 0
	Ridge      float64 // ρ of (ρ/2)‖w‖², over the whole vector, biases too (lecture (15)); its gradient is +ρw
}

// Validate reports every field out of its bounds.
func (a Architecture) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("architecture: "+format, args...)) }
	width := func(field string, n int) {
		if n < 1 || n > maxWidth {
			bad("%s is %d; allowed are 1 to %d", field, n, maxWidth)
		}
	}
	width("inputs", a.Inputs)
	if len(a.Hidden) > maxHidden {
		bad("hidden has %d layers; allowed are 0 to %d", len(a.Hidden), maxHidden)
	}
	for i, n := range a.Hidden {
		width(fmt.Sprintf("hidden[%d]", i), n)
	}
	width("outputs", a.Outputs)
	switch {
	case a.Risk.Validate() != nil:
		bad("risk: %w", a.Risk.Validate())
	case a.Risk == spec.RiskSoftmax && a.Outputs < 2:
		bad("outputs is %d; the softmax risk needs one per class, at least 2", a.Outputs)
	case a.Risk != spec.RiskSoftmax && a.Outputs != 1:
		bad("outputs is %d; the %v risk needs 1", a.Outputs, a.Risk)
	}
	if err := a.Activation.Validate(); err != nil && (len(a.Hidden) > 0 || a.Activation != "") {
		bad("activation: %w", err)
	}
	if isHuber := a.Risk == spec.RiskHuber; isHuber != (a.HuberDelta > 0) || math.IsInf(a.HuberDelta, 1) ||
		a.HuberDelta != a.HuberDelta {
		bad("the δ of the huber risk is %v; it must be finite and above 0 with that risk, and 0 with others",
			a.HuberDelta)
	}
	if !(a.Ridge >= 0) || math.IsInf(a.Ridge, 1) {
		bad("ridge is %v; it must be finite and not negative", a.Ridge)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if n := a.count(); n > maxParams {
		bad("%d parameters; allowed are at most %d", n, maxParams)
	}
	return errors.Join(errs...)
}

// count is Params in 64 bits: at most 9 layers of 2³² weights, so it cannot overflow where int would.
func (a Architecture) count() int64 {
	var n int64
	in := int64(a.Inputs)
	for i := range len(a.Hidden) + 1 {
		out := int64(a.width(i))
		n += in * out
		if a.Bias {
			n += out
		}
		in = out
	}
	return n
}

// width is the number of units of layer i; the last layer is the output.
func (a Architecture) width(i int) int {
	if i < len(a.Hidden) {
		return a.Hidden[i]
	}
	return a.Outputs
}

// Params is d, the length of the flat vector of a valid architecture.
func (a Architecture) Params() int { return int(a.count()) }

// Layout lists the tensors of a valid architecture in the order in which they fill the flat vector:
// "layer0.weight" [out,in], "layer0.bias" [out] if there are biases, "layer1.weight", and so on.
func (a Architecture) Layout() []Tensor {
	var layout []Tensor
	in := a.Inputs
	for i := range len(a.Hidden) + 1 {
		out := a.width(i)
		layout = append(layout, Tensor{Name: fmt.Sprintf("layer%d.weight", i), Shape: []int{out, in}})
		if a.Bias {
			layout = append(layout, Tensor{Name: fmt.Sprintf("layer%d.bias", i), Shape: []int{out}})
		}
		in = out
	}
	return layout
}
