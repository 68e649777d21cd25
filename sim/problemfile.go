package sim

import (
	"fmt"

	"github.com/fedmesh/fedmesh/learner"
)

// problemFile is problem.json.
type problemFile struct {
	Agents   int       `json:"agents"`
	Model    modelFile `json:"model"`
	Weights  []float64 `json:"weights"`  // p_k in any scale; null = equal
	Minimum  float64   `json:"minimum"`  // J(w⁰), with hessian.npy
	Variance float64   `json:"variance"` // σ², with means.npy
	// StrongConvexity and Smoothness are those of the schedule η_t; 0 = unknown.
	StrongConvexity float64 `json:"strong_convexity"`
	Smoothness      float64 `json:"smoothness"`
}

// modelFile is a learner.Architecture in words.
type modelFile struct {
	Inputs     int     `json:"inputs"`
	Hidden     []int   `json:"hidden"` // units of each hidden layer
	Outputs    int     `json:"outputs"`
	Activation string  `json:"activation"` // tanh, relu, identity; of hidden layers only
	Risk       string  `json:"risk"`       // squared, logistic, softmax, full_squared
	Bias       bool    `json:"bias"`
	Ridge      float64 `json:"ridge"`
}

func describeModel(a learner.Architecture) modelFile {
	return modelFile{
		Inputs: a.Inputs, Hidden: a.Hidden, Outputs: a.Outputs, Activation: a.Activation.String(), Risk: a.Risk.String(), Bias: a.Bias, Ridge: a.Ridge,
	}
}

// architecture is the model, or what is wrong with it.
func (m *modelFile) architecture() (learner.Architecture, error) {
	a := learner.Architecture{Inputs: m.Inputs, Hidden: m.Hidden, Outputs: m.Outputs, Bias: m.Bias, Ridge: m.Ridge}
	for a.Risk.String() != m.Risk {
		if a.Risk++; a.Risk > learner.FullSquared {
			return a, fmt.Errorf("model.risk is %q; want squared, logistic, softmax or full_squared", m.Risk)
		}
	}
	for m.Activation != "" && a.Activation.String() != m.Activation {
		if a.Activation++; a.Activation > learner.Identity {
			return a, fmt.Errorf("model.activation is %q; want tanh, relu or identity", m.Activation)
		}
	}
	return a, a.Validate()
}
