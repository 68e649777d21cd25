package data

import (
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/learner"
)

// Local is the data of an agent. Exactly one of the fields is set: stored samples, or a stream of new samples.
type Local[T learner.Float] struct {
	Samples *learner.Samples[T]
	Stream  learner.SampleStream[T]
}

// Loader returns the data of agent k, 0 ≤ k < K. The result is valid until the next call. It may be called for any
// agent any number of times, and returns the same data each time. A Loader must be used by only one goroutine.
type Loader[T learner.Float] func(k int) Local[T]

// Metric is a number that a problem computes for a model. The function Of computes it from the parameters w of length
// d. The function Of must be safe for concurrent use.
type Metric struct {
	Name string
	Of   func(w []float64) float64
}

// Problem is an instance of a learning problem: K agents with their data, a model, and known properties of the
// aggregate risk J(w) = Σ p_k J_k(w). Problem is safe for concurrent use.
type Problem[T learner.Float] struct {
	Model  learner.Architecture
	Agents int // number of agents (K)
	// Loader returns a new loader for a goroutine. Streams draw from pcg, which may be nil if only stored samples are
	// read.
	Loader  func(pcg *rand.PCG) Loader[T]
	Weights []float64 // weights p_k in any scale, normalised to sum 1 in J; nil means equal weights

	// Start is the initial model w_0. If it is nil, the default of the architecture is used, which is 0 for a model
	// without hidden layers.
	Start     []float64
	Objective Objective
	Classes   *Classes      // parameters of a logistic or bilinear problem; nil for other problems
	Linear    func() Linear // returns a linear problem with the drawn optima; nil for other problems
	Metrics   []Metric      // additional metrics
	// HeldOut holds rows of each agent that are not used for training. HeldOut is nil if no rows are held out.
	HeldOut []*learner.Samples[T]
	// Labels contains the names of the agents. An agent makes the same random draws as a live agent with the same name.
	// nil means that the agents are numbered.
	Labels []string
}

// Objective contains the known properties of the aggregate risk J. All fields are optional.
type Objective struct {
	Risk     func(w []float64) float64 // aggregate risk J(w)
	Excess   func(w []float64) float64 // risk above the minimum, J(w) − J(w⁰), computed without cancellation
	Gradient func(dst, w []float64)    // stores the gradient ∇J(w) in dst

	Minimizer []float64 // minimiser w⁰ of J
	// returns the Hessian ∇²J of a quadratic J, in d·d numbers; nil if unknown or not quadratic
	Hessian func() []float64
	Minimum float64 // minimum of J; valid only if Excess is set

	StrongConvexity float64 // strong convexity μ_sc: the smallest eigenvalue of ∇²J; 0 means unknown
	Steepest        float64 // largest eigenvalue of the Hessian of a quadratic J; 0 means unknown or not quadratic
	Smoothness      float64 // smoothness L_s: the largest eigenvalue of all agents' Hessians ∇²J_k; 0 means unknown
	Isotropic       float64 // variance σ_h² if all agents draw new regressors from N(0, σ_h²I); otherwise 0
	// Curvature returns the largest eigenvalue of the Hessian ∇²J_k of agent k. For logistic and softmax regression, it
	// returns only the ridge ρ, because their other curvature vanishes far from the minimum. Step sizes of at least
	// 2/Curvature are known to diverge. Curvature is nil if the eigenvalue is unknown.
	Curvature func(k int) float64
}
