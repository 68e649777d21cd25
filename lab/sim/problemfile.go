package sim

import (
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// problemFile is the content of problem.json.
type problemFile struct {
	Agents   int       `json:"agents"`
	Model    modelFile `json:"model"`
	Weights  []float64 `json:"weights"`  // p_k in any scale; null means equal
	Minimum  float64   `json:"minimum"`  // J(w⁰), with hessian.npy
	Variance float64   `json:"variance"` // σ², with means.npy
	// StrongConvexity and Smoothness are the constants of the schedule η_t; 0 means unknown.
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
	Activation  spec.Activation  `json:"activation,omitempty"` // hidden layers only
	Risk        spec.LossKind    `json:"risk"`
	HasBias     bool             `json:"bias"`
	HuberDelta  float64          `json:"huber_delta,omitempty"`
	Ridge       float64          `json:"ridge"`

	ExternalTensors []learner.TensorSpec `json:"-"` // unused: external models are not simulated
}

// architecture returns the model, or an error if it is invalid.
func (m modelFile) architecture() (learner.Architecture, error) {
	a := learner.Architecture(m)
	return a, a.Validate()
}
