package data

import (
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/learner"
)

// Local is what an agent learns from: samples that it holds, or a stream of fresh ones. The other is nil.
type Local[T learner.Float] struct {
	Samples *learner.Samples[T]
	Stream  learner.SampleStream[T]
}

// Loader makes the data of one agent after the other, 0 ≤ k < K. Its result is valid until the next call: an
// agent exists only while it is needed. It serves one goroutine and may be asked for any agent, any number of times;
// the same agent has the same data each time.
type Loader[T learner.Float] func(k int) Local[T]

// Metric is a number that a problem defines for a model, such as its distance from somewhere. Of reads w, of length d,
// and may be called by several goroutines.
type Metric struct {
	Name string
	Of   func(w []float64) float64
}

// Problem is one instance of a learning problem: K agents with their data, one model, and what is known of the
// aggregate risk J(w) = Σ p_k J_k(w). Several goroutines may use it.
type Problem[T learner.Float] struct {
	Model  learner.Architecture
	Agents int // K
	// Loader makes one for each goroutine. Streams draw from pcg, which may be nil where only stored samples are read.
	Loader  func(pcg *rand.PCG) Loader[T]
	Weights []float64 // p_k in any scale, Σ p_k J_k having them add up to 1; nil = equal

	Start     []float64 // w_0; nil = the model's own, zero without hidden layers
	Objective Objective
	Classes   *Classes      // of logistic and bilinear problems
	Linear    func() Linear // of linear problems, with the w_k⁰ that were drawn; nil of others
	Metrics   []Metric      // recorded beside the usual ones
	// HeldOut is rows of each agent that it does not train on; nil = there are none.
	HeldOut []*learner.Samples[T]
	// Labels are the names of the agents, whose draws are those of live agents of these names; nil = their numbers.
	Labels []string
}

// Objective is what is known of J. Everything is optional.
type Objective struct {
	Risk     func(w []float64) float64 // J(w)
	Excess   func(w []float64) float64 // J(w) − J(w⁰), without cancellation
	Gradient func(dst, w []float64)    // ∇J(w)

	Minimizer []float64        // w⁰
	Hessian   func() []float64 // ∇²J, d·d numbers, of a quadratic J; nil = another, or unknown
	Minimum   float64          // J(w⁰); meaningful with Excess

	StrongConvexity float64 // μ_sc = λ_min(∇²J); 0 = unknown
	Steepest        float64 // λ_max(∇²J) of a quadratic J; 0 = another, or unknown
	Smoothness      float64 // L_s = max_k λ_max(∇²J_k); 0 = unknown
	Isotropic       float64 // σ_h² of agents that all draw fresh regressors from N(0, σ_h²I); 0 = otherwise
	// Curvature is λ_max(∇²J_k) of agent k, or the ridge ρ of logistic and softmax regression, whose other curvature
	// vanishes far away: a step size of 2 over it is known to diverge. nil = unknown.
	Curvature func(k int) float64
}
