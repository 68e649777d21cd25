package spec

import (
	"cmp"
	"fmt"
	"slices"
)

// LossKind is the loss Q of one sample (h, γ) with model output z; z = hᵀw for a model without hidden layers.
type LossKind string

// The risks.
const (
	LossSquared  LossKind = "squared"  // ½(γ − z)², gradient −h(γ − z): lecture (36)–(37)
	LossLogistic LossKind = "logistic" // ln(1 + exp(−γ z)), γ = ±1: lecture (15)
	LossSoftmax  LossKind = "softmax"  // ln Σ_c exp(z_c) − z_γ, γ = 0 … C−1: cross-entropy
	// LossHuber is ½r² of r = z − γ up to δ, and δ(|r| − δ/2) beyond: rows far off pull no harder than those at δ.
	LossHuber LossKind = "huber"
	// LossFullSquared is (γ − z)², gradient −2h(γ − z): a row of the regression (1/M)‖Xz − Y‖² of feddec. Only
	// simulations have it: the protocol has no byte for it.
	LossFullSquared LossKind = "full_squared"
)

var lossKinds = []LossKind{LossSquared, LossLogistic, LossSoftmax, LossHuber, LossFullSquared}

// LossKinds returns all losses.
func LossKinds() []LossKind { return slices.Clone(lossKinds) }

// DeviceLossKinds returns the losses that devices can train on. Each has a code in the protocol.
func DeviceLossKinds() []LossKind {
	return slices.DeleteFunc(LossKinds(), func(r LossKind) bool { return r == LossFullSquared })
}

// UnmarshalText reads a risk.
func (r *LossKind) UnmarshalText(text []byte) error { return parseEnum(r, text, lossKinds) }

// Validate reports a word that is no risk.
func (r LossKind) Validate() error { return checkEnum(r, lossKinds) }

// IsRegression reports whether targets are numbers and not classes. Evaluations then have an R² instead of an
// accuracy.
func (r LossKind) IsRegression() bool {
	return r == LossSquared || r == LossFullSquared || r == LossHuber
}

// StandardizesTarget reports whether a statistics round standardises the target. It is false for a loss that accepts
// only some numbers as targets, because a standardised target can be any number. If it is true and targets and outputs
// are multiplied by s, the risk must become s² times as large: reported risks are converted with that factor.
func (r LossKind) StandardizesTarget() bool {
	return r == LossSquared || r == LossFullSquared || r == LossHuber
}

// Activation is what a hidden layer applies to each unit.
type Activation string

// The activations.
const (
	ActivationTanh     Activation = "tanh"     // tanh(s)
	ActivationReLU     Activation = "relu"     // max(s, 0); its slope at 0 is taken as 0
	ActivationIdentity Activation = "identity" // s: products of matrices, such as w₁ᵀW₂h of 2nd-order (40)
)

var activations = []Activation{ActivationTanh, ActivationReLU, ActivationIdentity}

// UnmarshalText reads an activation.
func (a *Activation) UnmarshalText(text []byte) error { return parseEnum(a, text, activations) }

// Validate reports a word that is no activation.
func (a Activation) Validate() error { return checkEnum(a, activations) }

// ModelKind is a kind of model.
type ModelKind string

// The kinds.
const (
	ModelLinear   ModelKind = "linear"   // linear regression: the squared risk
	ModelLogistic ModelKind = "logistic" // logistic regression: two classes
	ModelSoftmax  ModelKind = "softmax"  // softmax regression: several classes
	ModelMLP      ModelKind = "mlp"      // layers of units, on any risk
	// ModelAutoencoder is layers of units that give the features back. Rows have no target.
	ModelAutoencoder ModelKind = "autoencoder"
	// ModelConv1D is filters that slide over windows of streams, and layers of units on what they find, on any risk.
	ModelConv1D ModelKind = "conv1d"
	// ModelExternal is tensors that a program of the device's owner trains: nothing here knows what they mean.
	ModelExternal ModelKind = "external"
)

// ModelKinds returns the kinds that agents train themselves.
func ModelKinds() []ModelKind { return slices.Clone(modelKinds) }

var modelKinds = []ModelKind{ModelLinear, ModelLogistic, ModelSoftmax, ModelMLP, ModelAutoencoder, ModelConv1D}

// UnmarshalText reads a kind.
func (k *ModelKind) UnmarshalText(text []byte) error {
	return parseEnum(k, text, append(ModelKinds(), ModelExternal))
}

// Validate reports a word that is no kind.
func (k ModelKind) Validate() error { return checkEnum(k, append(ModelKinds(), ModelExternal)) }

// HasTarget reports whether rows have a target, which the model predicts.
func (k ModelKind) HasTarget() bool { return k != ModelAutoencoder && k != ModelExternal }

// lossKindByModelKind has the risk of each kind without hidden layers that has a risk of its own. All other models
// without hidden layers are linear.
var lossKindByModelKind = map[ModelKind]LossKind{ModelLogistic: LossLogistic, ModelSoftmax: LossSoftmax}

// ModelKindFromLayers returns the kind of a model of layers with that many hidden ones.
func ModelKindFromLayers(hidden int, r LossKind) ModelKind {
	if hidden > 0 {
		return ModelMLP
	}
	for kind, of := range lossKindByModelKind {
		if of == r {
			return kind
		}
	}
	return ModelLinear
}

// FollowsFromLayers reports whether ModelKindFromLayers returns the kind: a task does not name it then.
func (k ModelKind) FollowsFromLayers() bool {
	return k == ModelLinear || k == ModelMLP || lossKindByModelKind[k] != ""
}

// Model is the key model of a task, and of the data of an experiment.
type Model struct {
	Kind ModelKind `yaml:"kind" json:"kind"`
	// of softmax, or of an mlp or a conv1d with the risk softmax; else 0
	Classes int `yaml:"classes" json:"classes"`
	// of a conv1d
	Convolution `yaml:",inline"`
	// units of the hidden layers of an mlp, an autoencoder or, above its filters, a conv1d, from the input on
	HiddenUnits []int      `yaml:"hidden" json:"hidden"`
	Activation  Activation `yaml:"activation" json:"activation"` // of hidden layers
	// of an mlp or a conv1d; of a linear model, squared or huber
	Risk       LossKind `yaml:"risk" json:"risk"`
	HuberDelta float64  `yaml:"huber_delta" json:"huber_delta"`
	HasBias    bool     `yaml:"bias" json:"bias"`
	Ridge      float64  `yaml:"ridge" json:"ridge"` // ρ of (ρ/2)‖w‖²
	// FrozenTensors names layers ("layer0") or tensors ("layer0.weight") that training leaves as they are.
	FrozenTensors []string `yaml:"frozen" json:"frozen"`
	// TrainerName is the name under which devices have the program of an external model.
	TrainerName string `yaml:"trainer" json:"trainer,omitempty"`
	// InitialModelFile is a safetensors file with the model that new runs begin with; empty for one that is drawn. An
	// external model has its tensors from there.
	InitialModelFile string `yaml:"initial" json:"initial,omitempty"`
}

// maxUnits bounds the units of a layer, and classes.
const maxUnits = 65536

// EffectiveLossKind is the risk that the model is trained on: that of its kind, or Risk of an mlp or a conv1d.
func (m *Model) EffectiveLossKind() LossKind {
	switch m.Kind {
	case ModelLinear:
		if m.Risk == LossHuber {
			return LossHuber
		}
		return LossSquared
	case ModelAutoencoder:
		return LossSquared
	}
	return cmp.Or(lossKindByModelKind[m.Kind], m.Risk)
}

// OutputCount is the number of outputs: one for each class of a softmax, else 1.
func (m *Model) OutputCount() int { return max(m.Classes, 1) }

// CheckIncompatibilities finds what cannot be; key is that of the model.
func (m *Model) Check(c *ProblemList, key string) {
	c.AddError(key+".kind", m.Kind.Validate())
	external := m.Kind == ModelExternal
	c.Require(external == (m.TrainerName != ""), key+".trainer",
		"is %q; the kind external needs it, and no other has it",
		m.TrainerName)
	c.Require(!external || m.InitialModelFile != "", key+".initial",
		"is empty; the kind external needs a file with the model's tensors")
	c.Require(!external || len(m.FrozenTensors) == 0, key+".frozen",
		"does not go with the kind external: its program trains it")
	c.AddError(key+".risk", m.Risk.Validate())
	c.AddError(key+".activation", m.Activation.Validate())
	layers := m.Kind == ModelMLP || m.Kind == ModelAutoencoder
	c.Require(layers == (len(m.HiddenUnits) > 0) || m.Kind == ModelConv1D, key+".hidden",
		"is %v; it goes with the kinds mlp, autoencoder and conv1d, and with no other", m.HiddenUnits)
	m.Convolution.Check(c, key, m.Kind == ModelConv1D, len(m.HiddenUnits))
	for i, n := range m.HiddenUnits {
		c.Require(n >= 1 && n <= maxUnits, fmt.Sprintf("%s.hidden[%d]", key, i), "is %d; want 1 to %d", n, maxUnits)
	}
	if m.EffectiveLossKind() == LossSoftmax {
		c.Require(m.Classes >= 2 && m.Classes <= maxUnits, key+".classes", "is %d; want 2 to %d with a softmax",
			m.Classes,
			maxUnits)
	} else {
		c.Require(m.Classes == 0, key+".classes", "is %d; it goes with a softmax, and with no other", m.Classes)
	}
	c.Require((m.EffectiveLossKind() == LossHuber) == (m.HuberDelta != 0), key+".huber_delta",
		"is %v; it goes with the risk huber, and with no other", m.HuberDelta)
	c.Require(m.HuberDelta == 0 || isPositiveFinite(m.HuberDelta), key+".huber_delta", "is %v; want a positive number",
		m.HuberDelta)
	if !external {
		m.CheckTensorNames(c, key+".frozen", m.FrozenTensors, m.tensorNames())
	}
	c.Require(m.Ridge == 0 || isPositiveFinite(m.Ridge), key+".ridge", "is %v; want 0 or more", m.Ridge)
}

// CheckTensorNames finds names that are not among those wanted, or, with nil, none of the model's tensors and layers
// and not "last"; key is that of the list.
func (m *Model) CheckTensorNames(c *ProblemList, key string, names, want []string) {
	if want == nil {
		want = append(m.tensorNames(), "last")
	}
	for i, name := range names {
		c.Require(slices.Contains(want, name), fmt.Sprintf("%s[%d]", key, i), "is %q; want %s", name, JoinWithOr(want))
	}
}

// tensorNames names the layers and their tensors, as the flat vector has them.
func (m *Model) tensorNames() (names []string) {
	for i := range len(m.FiltersPerLayer) + len(m.HiddenUnits) + 1 {
		layer := fmt.Sprintf("layer%d", i)
		names = append(names, layer, layer+".weight")
		if m.HasBias {
			names = append(names, layer+".bias")
		}
	}
	return names
}
