package spec

import (
	"cmp"
	"fmt"
	"slices"
)

// LossKind is the kind of loss of a sample, given the model output z and the target γ. For a model without hidden
// layers, the output is z = hᵀw for the features h and the parameters w.
type LossKind string

// Kinds of loss.
const (
	// squared loss ½(γ − z)² of the output z for the target γ (lecture, equations (36)–(37)).
	LossSquared LossKind = "squared"
	// logistic loss ln(1 + exp(−γz)) of the output z for the target γ = ±1 (lecture, equation (15)).
	LossLogistic LossKind = "logistic"
	// cross-entropy loss ln Σ_c exp(z_c) − z_γ of the outputs z_c for the true class γ = 0 … C−1.
	LossSoftmax LossKind = "softmax"
	// LossHuber is the Huber loss of the residual r = z − γ: ½r² for |r| ≤ δ, and δ(|r| − δ/2) for larger residuals. An
	// outlier therefore has at most the gradient of a row with |r| = δ.
	LossHuber LossKind = "huber"
	// LossFullSquared is the squared loss (γ − z)² without the factor ½, whose gradient is −2h(γ − z), as in the
	// regression (1/M)‖Xz − Y‖² of the FedDec paper. Only simulations support this loss, because the protocol has no
	// code for it.
	LossFullSquared LossKind = "full_squared"
)

var lossKinds = []LossKind{LossSquared, LossLogistic, LossSoftmax, LossHuber, LossFullSquared}

// LossKinds returns all losses.
func LossKinds() []LossKind { return slices.Clone(lossKinds) }

// DeviceLossKinds returns the losses with which devices can train. Each of these losses has a code in the protocol.
func DeviceLossKinds() []LossKind {
	return slices.DeleteFunc(LossKinds(), func(r LossKind) bool { return r == LossFullSquared })
}

// UnmarshalText parses a loss.
func (r *LossKind) UnmarshalText(text []byte) error { return parseEnum(r, text, lossKinds) }

// Validate returns an error if the loss is unknown.
func (r LossKind) Validate() error { return checkEnum(r, lossKinds) }

// IsRegression reports whether targets are numbers instead of classes. Regression models are evaluated by R² instead of
// accuracy.
func (r LossKind) IsRegression() bool {
	return r == LossSquared || r == LossFullSquared || r == LossHuber
}

// StandardizesTarget reports whether a statistics round standardises the target. It is false for losses that accept
// only certain target values. For other losses, scaling targets and outputs by a factor s must scale the loss by s²,
// because reported risks are converted with that factor.
func (r LossKind) StandardizesTarget() bool {
	return r == LossSquared || r == LossFullSquared || r == LossHuber
}

// Activation is the function that a hidden layer applies to each unit.
type Activation string

// Activation functions.
const (
	ActivationTanh     Activation = "tanh" // hyperbolic tangent tanh(s) of the weighted sum s of a unit
	ActivationReLU     Activation = "relu"
	ActivationIdentity Activation = "identity"
)

var activations = []Activation{ActivationTanh, ActivationReLU, ActivationIdentity}

// UnmarshalText parses an activation.
func (a *Activation) UnmarshalText(text []byte) error { return parseEnum(a, text, activations) }

// Validate returns an error if the activation is unknown.
func (a Activation) Validate() error { return checkEnum(a, activations) }

// ModelKind is the kind of a model, such as "linear" or "mlp".
type ModelKind string

// Kinds of model.
const (
	ModelLinear   ModelKind = "linear"   // linear regression with the squared loss
	ModelLogistic ModelKind = "logistic" // logistic regression with two classes
	ModelSoftmax  ModelKind = "softmax"  // softmax regression with several classes
	ModelMLP      ModelKind = "mlp"      // multi-layer perceptron with any loss
	// ModelAutoencoder is a multi-layer perceptron that reconstructs its features. Its rows have no target.
	ModelAutoencoder ModelKind = "autoencoder"
	// ModelConv1D applies convolution filters to windows of time series, followed by fully connected layers. It
	// supports any loss.
	ModelConv1D ModelKind = "conv1d"
	// ModelExternal is a model that an external program on the device trains. Only that program interprets its tensors.
	ModelExternal ModelKind = "external"
)

// ModelKinds returns the kinds of models that agents can train without an external program.
func ModelKinds() []ModelKind { return slices.Clone(modelKinds) }

var modelKinds = []ModelKind{ModelLinear, ModelLogistic, ModelSoftmax, ModelMLP, ModelAutoencoder, ModelConv1D}

// UnmarshalText parses a model kind.
func (k *ModelKind) UnmarshalText(text []byte) error {
	return parseEnum(k, text, append(ModelKinds(), ModelExternal))
}

// Validate returns an error if the model kind is unknown.
func (k ModelKind) Validate() error { return checkEnum(k, append(ModelKinds(), ModelExternal)) }

// HasTarget reports whether the model predicts a target column.
func (k ModelKind) HasTarget() bool { return k != ModelAutoencoder && k != ModelExternal }

// lossKindByModelKind contains the loss that a kind of model without hidden layers implies. All kinds without hidden
// layers that are missing in the map are linear.
var lossKindByModelKind = map[ModelKind]LossKind{ModelLogistic: LossLogistic, ModelSoftmax: LossSoftmax}

// ModelKindFromLayers returns the kind of a fully connected model with the given number of hidden layers and loss.
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

// FollowsFromLayers reports whether this kind follows from the layers and the loss of a model (see
// ModelKindFromLayers). A task then omits the kind.
func (k ModelKind) FollowsFromLayers() bool {
	return k == ModelLinear || k == ModelMLP || lossKindByModelKind[k] != ""
}

// Model contains the settings under the key "model" in a task or an experiment.
type Model struct {
	Kind ModelKind `yaml:"kind" json:"kind"`
	// Classes is the number of classes of a classifier with the softmax loss, and 0 for other models.
	Classes int `yaml:"classes" json:"classes"`
	// Convolution describes the filter layers of a conv1d model.
	Convolution `yaml:",inline"`
	// HiddenUnits contains the number of units of each fully connected hidden layer of an mlp, an autoencoder or a
	// conv1d, starting with the layer next to the input.
	HiddenUnits []int      `yaml:"hidden" json:"hidden"`
	Activation  Activation `yaml:"activation" json:"activation"` // activation function of the hidden layers
	// Risk is the loss of an mlp or conv1d model. For a linear model it is squared or huber.
	Risk       LossKind `yaml:"risk" json:"risk"`
	HuberDelta float64  `yaml:"huber_delta" json:"huber_delta"`
	HasBias    bool     `yaml:"bias" json:"bias"`
	// Ridge is the factor ρ of the L2 penalty (ρ/2)‖w‖² on the parameters w.
	Ridge float64 `yaml:"ridge" json:"ridge"`
	// FrozenTensors lists the layers ("layer0") or tensors ("layer0.weight") that training does not change.
	FrozenTensors []string `yaml:"frozen" json:"frozen"`
	// TrainerName is the name of the program that trains an external model, as in the devices' configuration.
	TrainerName string `yaml:"trainer" json:"trainer,omitempty"`
	// InitialModelFile is the path of a safetensors file with the initial model of new runs. If it is empty, the
	// initial values are random. An external model takes its tensors from this file.
	InitialModelFile string `yaml:"initial" json:"initial,omitempty"`
}

// maxUnits is the maximum number of units per layer and the maximum number of classes.
const maxUnits = 65536

// EffectiveLossKind returns the loss used for training. For an mlp or conv1d it is the field Risk; for other models it
// follows from the kind of the model.
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

// OutputCount returns the number of model outputs: the number of classes for a classifier with several classes, and
// otherwise 1.
func (m *Model) OutputCount() int { return max(m.Classes, 1) }

// Check validates the model settings and reports errors under key.
func (m *Model) Check(c *ProblemList, key string) {
	c.AddError(key+".kind", m.Kind.Validate())
	external := m.Kind == ModelExternal
	c.Require(external == (m.TrainerName != ""), key+".trainer",
		"this key is set to %q, but the key is required for the model kind external and invalid for all others",
		m.TrainerName)
	c.Require(!external || m.InitialModelFile != "", key+".initial",
		"this key is empty, but the model kind external requires a file with the model's tensors")
	c.Require(!external || len(m.FrozenTensors) == 0, key+".frozen",
		"this key cannot be combined with the model kind external: the trainer trains the whole model")
	c.AddError(key+".risk", m.Risk.Validate())
	c.AddError(key+".activation", m.Activation.Validate())
	layers := m.Kind == ModelMLP || m.Kind == ModelAutoencoder
	c.Require(layers == (len(m.HiddenUnits) > 0) || m.Kind == ModelConv1D, key+".hidden",
		"this key is set to %v, but hidden layers are required for mlp and autoencoder, optional for conv1d and "+
			"invalid for all other kinds", m.HiddenUnits)
	m.Convolution.Check(c, key, m.Kind == ModelConv1D, len(m.HiddenUnits))
	for i, n := range m.HiddenUnits {
		c.Require(n >= 1 && n <= maxUnits, fmt.Sprintf("%s.hidden[%d]", key, i), "invalid value %d: must be between "+
			"1 and %d", n, maxUnits)
	}
	if m.EffectiveLossKind() == LossSoftmax {
		c.Require(m.Classes >= 2 && m.Classes <= maxUnits, key+".classes", "invalid value %d: must be between 2 and "+
			"%d with the risk softmax",
			m.Classes,
			maxUnits)
	} else {
		c.Require(m.Classes == 0, key+".classes", "this key is set to %d, but only the risk softmax uses this key: "+
			"remove it",
			m.Classes)
	}
	c.Require((m.EffectiveLossKind() == LossHuber) == (m.HuberDelta != 0), key+".huber_delta",
		"this key is set to %v, but the key is required for the risk huber and invalid for all others", m.HuberDelta)
	c.Require(m.HuberDelta == 0 || isPositiveFinite(m.HuberDelta), key+".huber_delta", "invalid value %v: must be a "+
		"positive number",
		m.HuberDelta)
	if !external {
		m.CheckTensorNames(c, key+".frozen", m.FrozenTensors, m.tensorNames())
	}
	c.Require(m.Ridge == 0 || isPositiveFinite(m.Ridge), key+".ridge", "invalid value %v: must be finite and not "+
		"negative", m.Ridge)
}

// CheckTensorNames reports each element of names that is not in want, under the configuration key of the list. If want
// is nil, it accepts the names of the model's tensors and layers, and "last".
func (m *Model) CheckTensorNames(c *ProblemList, key string, names, want []string) {
	if want == nil {
		want = append(m.tensorNames(), "last")
	}
	for i, name := range names {
		c.Require(slices.Contains(want, name), fmt.Sprintf("%s[%d]", key, i), "invalid value %q: must be %s",
			name, JoinWithOr(want))
	}
}

// tensorNames returns the names of the layers and their tensors, in the order of the parameter vector.
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
