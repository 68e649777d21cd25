package sim

import (
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// problemFile is the decoded content of problem.json in a dump.
type problemFile struct {
	Agents   int       `json:"agents"`
	Model    modelFile `json:"model"`
	Weights  []float64 `json:"weights"`  // weight of each agent in any scale; null means equal weights
	Minimum  float64   `json:"minimum"`  // minimum of the aggregate risk, if hessian.npy exists
	Variance float64   `json:"variance"` // variance of the features, if means.npy exists
	// StrongConvexity and Smoothness are the constants of the diminishing step size. 0 means unknown.
	StrongConvexity float64 `json:"strong_convexity"`
	Smoothness      float64 `json:"smoothness"`
}

// modelFile is a learner.Architecture with the field names of problem.json.
type modelFile struct {
	Kind        spec.ModelKind   `json:"kind,omitempty"`
	Inputs      int              `json:"inputs"`
	Convolution spec.Convolution `json:"convolution,omitzero"` // conv1d only
	HiddenUnits []int            `json:"hidden"`               // units of each hidden layer
	Outputs     int              `json:"outputs"`
	Activation  spec.Activation  `json:"activation,omitempty"` // activation of the hidden layers
	Risk        spec.LossKind    `json:"risk"`
	HasBias     bool             `json:"bias"`
	HuberDelta  float64          `json:"huber_delta,omitempty"`
	Ridge       float64          `json:"ridge"`

	ExternalTensors []learner.TensorSpec `json:"-"` // unused: external models are not simulated
}

// architecture returns the model of the file, or an error if the model is invalid.
func (m modelFile) architecture() (learner.Architecture, error) {
	a := learner.Architecture(m)
	return a, a.Validate()
}
