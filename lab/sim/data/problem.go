package data

import (
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/learner"
)

// Local is the data of an agent: either stored samples or a stream of fresh samples. The other field is nil.
type Local[T learner.Float] struct {
	Samples *learner.Samples[T]
	Stream  learner.SampleStream[T]
}

// Loader returns the data of agent k, 0 ≤ k < K. The result is valid until the next call. A Loader is used by one
// goroutine. It may be called for any agent any number of times, and returns the same data each time.
type Loader[T learner.Float] func(k int) Local[T]

// Metric is a number that a problem computes for a model. Of reads w, of length d, and must be safe for concurrent use.
type Metric struct {
	Name string
	Of   func(w []float64) float64
}

// Problem is an instance of a learning problem: K agents with their data, a model, and known properties of the
// aggregate risk J(w) = Σ p_k J_k(w). It is safe for concurrent use.
type Problem[T learner.Float] struct {
	Model  learner.Architecture
	Agents int // K
	// Loader returns a new loader for a goroutine. Streams draw from pcg, which may be nil if only stored samples are
	// read.
	Loader  func(pcg *rand.PCG) Loader[T]
	Weights []float64 // p_k in any scale; normalised to sum 1 in J; nil means equal weights

	Start     []float64 // w_0; nil means the model's own start, zero without hidden layers
	Objective Objective
	Classes   *Classes      // logistic and bilinear problems only
	Linear    func() Linear // linear problems only; includes the drawn w_k⁰
	Metrics   []Metric      // additional metrics
	// HeldOut holds rows of each agent that are not used for training; nil means none.
	HeldOut []*learner.Samples[T]
	// Labels are the names of the agents. An agent has the same draws as a live agent with its name. nil means the
	// agents' numbers.
	Labels []string
}

// Objective describes the known properties of J. All fields are optional.
type Objective struct {
	Risk     func(w []float64) float64 // J(w)
	Excess   func(w []float64) float64 // J(w) − J(w⁰), without cancellation
	Gradient func(dst, w []float64)    // ∇J(w)

	Minimizer []float64        // w⁰
	Hessian   func() []float64 // ∇²J of a quadratic J, d·d numbers; nil if unknown or not quadratic
	Minimum   float64          // J(w⁰); meaningful with Excess

	StrongConvexity float64 // μ_sc = λ_min(∇²J); 0 means unknown
	Steepest        float64 // λ_max(∇²J) of a quadratic J; 0 means unknown or not quadratic
	Smoothness      float64 // L_s = max_k λ_max(∇²J_k); 0 means unknown
	Isotropic       float64 // σ_h² if all agents draw fresh regressors from N(0, σ_h²I); otherwise 0
	// Curvature returns λ_max(∇²J_k) of agent k. For logistic and softmax regression it returns only the ridge ρ,
	// because the other curvature vanishes far away. Step sizes of at least 2/Curvature are known to diverge. nil means
	// unknown.
	Curvature func(k int) float64
}
