package spec

// Risk is the loss Q of one sample (h, γ) with model output z; z = hᵀw for a model without hidden layers.
type Risk string

// The risks.
const (
	RiskSquared  Risk = "squared"  // ½(γ − z)², gradient −h(γ − z): lecture (36)–(37)
	RiskLogistic Risk = "logistic" // ln(1 + exp(−γ z)), γ = ±1: lecture (15)
	RiskSoftmax  Risk = "softmax"  // ln Σ_c exp(z_c) − z_γ, γ = 0 … C−1: cross-entropy
	// RiskFullSquared is (γ − z)², gradient −2h(γ − z): a row of the regression (1/M)‖Xz − Y‖² of feddec. Only simulations
	// have it: the protocol has no byte for it.
	RiskFullSquared Risk = "full_squared"
)

var risks = []Risk{RiskSquared, RiskLogistic, RiskSoftmax, RiskFullSquared}

// UnmarshalText reads a risk.
func (r *Risk) UnmarshalText(text []byte) error { return read(r, text, risks) }

// Validate reports a word that is no risk.
func (r Risk) Validate() error { return check(r, risks) }

// Regression says that targets are numbers, not classes.
func (r Risk) Regression() bool { return r == RiskSquared || r == RiskFullSquared }

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
func (a *Activation) UnmarshalText(text []byte) error { return read(a, text, activations) }

// Validate reports a word that is no activation.
func (a Activation) Validate() error { return check(a, activations) }
