package data

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// newPooled returns a problem like [NewLinear], but it draws a fixed number of samples (h, v) only once. Every agent k
// then draws uniformly from these samples and computes the target γ = hᵀw_k⁰ + v. This is faster, because drawing new
// random numbers costs ten times as much as a local step. All agents have the same regressor covariance R and noise
// variance σ_v². The aggregate risk of the drawn rows is known exactly.
func newPooled[T learner.Float](given Linear, rows, agents int, weights []float64, seed uint64) *Problem[T] {
	l := newLinear(given, agents, seed)
	p := &pool[T]{linear: l, x: make([]T, rows*l.Inputs), v: make([]T, rows)}
	rng := source(seed, forRows, 0)
	for i := range p.v {
		for j := range l.Inputs {
			p.x[i*l.Inputs+j] = T(math.Sqrt(elementOrOnly(l.Regressors[0], j)) * rng.NormFloat64())
		}
		p.v[i] = T(math.Sqrt(l.Noise[0]) * rng.NormFloat64())
	}
	q := p.aggregate(agents, weights)
	objective := q.objective()
	largest := eigenvalues(q.full)[l.Inputs-1]
	objective.Smoothness, objective.Curvature = largest, func(int) float64 { return largest }
	problem := &Problem[T]{
		Model:  learner.Architecture{Inputs: l.Inputs, Outputs: 1, Risk: spec.LossSquared},
		Agents: agents, Weights: weights, Objective: objective, Loader: p.loader,
	}
	if l.Optima == nil && l.Spread == 0 {
		shared := p.shared()
		problem.Loader = func(*rand.PCG) Loader[T] { return func(int) Local[T] { return Local[T]{Samples: shared} } }
	}
	return problem
}

// pool holds the regressors and the noise of the rows that all agents share.
type pool[T learner.Float] struct {
	*linear
	x, v []T
}

// shared returns one set of samples for all agents. shared requires that all agents have the same optimum.
func (p *pool[T]) shared() *learner.Samples[T] {
	optimum, y := make([]float64, p.Inputs), make([]T, len(p.v))
	p.optimum(optimum, 0)
	for i := range y {
		y[i] = target(p.x[i*p.Inputs:][:p.Inputs], optimum, p.v[i])
	}
	return learner.NewSamples(p.Inputs, p.x, y)
}

// target returns the target hᵀw⁰ + v of a sample with regressor h, optimum w⁰ and noise v.
func target[T learner.Float](h []T, optimum []float64, v T) T {
	sum := 0.0
	for j, x := range h {
		sum += float64(float64(x) * optimum[j])
	}
	return T(sum + float64(v))
}

func (p *pool[T]) loader(pcg *rand.PCG) Loader[T] {
	s := &poolStream[T]{pool: p, at: make([]float64, p.Inputs), rng: rand.New(pcg)}
	return func(k int) Local[T] {
		p.optimum(s.at, k)
		return Local[T]{Stream: s}
	}
}

// poolStream draws the samples of one agent from the pool.
type poolStream[T learner.Float] struct {
	*pool[T]
	at  []float64 // optimum w_k⁰ of the agent
	rng *rand.Rand
}

// Sample implements learner.SampleStream.
func (s *poolStream[T]) Sample(x []T) T {
	i := s.rng.IntN(len(s.v))
	copy(x, s.x[i*len(x):])
	return target(x, s.at, s.v[i])
}

// aggregate returns the exact aggregate risk over the pooled rows. With the moments H = mean hhᵀ and b = mean vh of
// these rows, the risk of agent k is J_k = ½(w − w_k⁰)ᵀH(w − w_k⁰) − bᵀ(w − w_k⁰) + ½ mean v². The minimiser is w⁰ =
// Σp_k w_k⁰ + H⁻¹b.
func (p *pool[T]) aggregate(agents int, weights []float64) *quadratic {
	n := p.Inputs
	h, b, square := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil), 0.0
	x := mat.NewVecDense(n, nil)
	for i, v := range p.v {
		for j := range n {
			x.SetVec(j, float64(p.x[i*n+j]))
		}
		h.SymRankOne(h, 1/float64(len(p.v)), x)
		b.AddScaledVec(b, float64(v)/float64(len(p.v)), x)
		square += float64(v) * float64(v) / float64(len(p.v))
	}
	share := shares(weights, agents)
	centre := mat.NewVecDense(n, nil)
	optimum := make([]float64, n)
	for k := range agents {
		p.optimum(optimum, k)
		centre.AddScaledVec(centre, share(k), mat.NewVecDense(n, optimum))
	}
	spread := 0.0
	var away, pull mat.VecDense
	if p.Optima != nil || p.Spread > 0 {
		for k := range agents {
			p.optimum(optimum, k)
			away.SubVec(mat.NewVecDense(n, optimum), centre)
			spread += share(k) * mat.Inner(&away, h, &away)
		}
	}
	if err := pull.SolveVec(h, b); err != nil {
		// Cannot happen: Validate requires ten rows per coordinate.
		panic(fmt.Sprintf("data: cannot invert the second moments of %d rows: %v", len(p.v), err))
	}
	q := &quadratic{full: h, minimum: (square + spread - mat.Dot(b, &pull)) / 2}
	centre.AddVec(centre, &pull)
	q.minimizer = centre.RawVector().Data
	return q
}
