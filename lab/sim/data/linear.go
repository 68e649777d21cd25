package data

import (
	"math"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// Linear describes agents whose samples follow the linear model γ = hᵀw_k⁰ + v, with regressors h ~ N(0, R_k) and noise
// v ~ N(0, σ_v,k²). The risk is ½E(γ − hᵀw)² (lecture, eqs. (82)–(83); Vlaski and Sayed, chapter 5, eq. (5.66)). The
// covariance R_k is diagonal. Every local step draws new samples.
type Linear struct {
	Inputs int // number of features (M)
	// Regressors contains the variances of the regressors. It has one row for all agents, or one row per agent. Each
	// row has one number for all coordinates, or one number per coordinate.
	Regressors [][]float64
	Noise      []float64   // variance of the noise: one number for all agents, or one number per agent
	Optima     [][]float64 // optimum w_k⁰ of each agent; nil draws them from N(Centre, Spread·I)
	// mean of randomly drawn optima: one number for all coordinates, or one number per coordinate
	Centre []float64
	Spread float64 // variance σ_w² of randomly drawn optima
}

// maxStoredOptima is the maximum number of coordinates for which randomly drawn optima are stored. If there are more
// coordinates, the optima are drawn again whenever they are needed.
const maxStoredOptima = 1 << 20

// linear is an instance of Linear, which is determined by a seed.
type linear struct {
	Linear
	seed  uint64
	table []float64 // stored optima, row by row; nil if the optima are drawn whenever they are needed
}

// optimum stores the optimum w_k⁰ of agent k in dst.
func (l *linear) optimum(dst []float64, k int) {
	switch {
	case l.Optima != nil:
		copy(dst, l.Optima[k])
	case l.table != nil:
		copy(dst, l.table[k*l.Inputs:])
	default:
		l.draw(dst, k)
	}
}

// drawn returns the problem with all its optima filled in.
func (l *linear) drawn(agents int) Linear {
	given := l.Linear
	given.Optima = make([][]float64, agents)
	for k := range given.Optima {
		given.Optima[k] = make([]float64, l.Inputs)
		l.optimum(given.Optima[k], k)
	}
	return given
}

func (l *linear) draw(dst []float64, k int) {
	deviation := math.Sqrt(l.Spread)
	var rng *rand.Rand
	if deviation > 0 {
		rng = source(l.seed, forOptima, k)
	}
	for j := range dst {
		dst[j] = elementOrOnly(l.Centre, j)
		if rng != nil {
			dst[j] += deviation * rng.NormFloat64()
		}
	}
}

func newLinear(given Linear, agents int, seed uint64) *linear {
	l := &linear{Linear: given, seed: seed}
	if l.Optima == nil && agents*l.Inputs <= maxStoredOptima {
		table := make([]float64, agents*l.Inputs)
		for k := range agents {
			l.draw(table[k*l.Inputs:][:l.Inputs], k)
		}
		l.table = table
	}
	return l
}

// elementOrOnly returns list[j]. If the list has only one element, it returns that element.
func elementOrOnly(list []float64, j int) float64 {
	if len(list) == 1 {
		return list[0]
	}
	return list[j]
}

func (l *linear) regressors(k int) []float64 {
	if len(l.Regressors) == 1 {
		return l.Regressors[0]
	}
	return l.Regressors[k]
}

// NewLinear returns an instance of a linear problem for the given number of agents. The weights of the agents may have
// any scale; nil means equal weights.
func NewLinear[T learner.Float](given Linear, agents int, weights []float64, seed uint64) *Problem[T] {
	l := newLinear(given, agents, seed)
	objective := l.aggregate(agents, weights).objective()
	objective.Curvature = func(k int) float64 { return largest(l.regressors(k)) }
	if len(l.Regressors) == 1 && len(l.Regressors[0]) == 1 {
		objective.Isotropic = l.Regressors[0][0]
	}
	for k := range l.Regressors {
		objective.Smoothness = max(objective.Smoothness, largest(l.Regressors[k]))
	}
	return &Problem[T]{
		Model:  learner.Architecture{Inputs: l.Inputs, Outputs: 1, Risk: spec.LossSquared},
		Agents: agents, Weights: weights, Objective: objective, Linear: func() Linear { return l.drawn(agents) },
		Loader: func(pcg *rand.PCG) Loader[T] {
			s := &linearStream[T]{normals: newNormals(pcg), optimum: make([]float64, l.Inputs),
				deviation: make([]float64, l.Inputs)}
			// In this case, all agents have the same distribution.
			same := l.Optima == nil && l.Spread == 0 && len(l.Regressors) == 1 && len(l.Noise) == 1
			return func(k int) Local[T] {
				if !same || !s.set {
					s.become(l, k)
				}
				return Local[T]{Stream: s}
			}
		},
	}
}

func largest(diagonal []float64) float64 {
	most := diagonal[0]
	for _, v := range diagonal {
		most = max(most, v)
	}
	return most
}

// aggregate returns the aggregate risk J(w) = Σ p_k (½σ_v,k² + ½(w − w_k⁰)ᵀR_k(w − w_k⁰)). The minimiser of J is the
// mean of the agents' optima w_k⁰, weighted by the matrices p_k R_k.
func (l *linear) aggregate(agents int, weights []float64) *quadratic {
	n := l.Inputs
	hessian, pulled, square := make([]float64, n), make([]float64, n), make([]float64, n)
	optimum, noise, share := make([]float64, n), 0.0, shares(weights, agents)
	for k := range agents {
		p := share(k)
		l.optimum(optimum, k)
		r := l.regressors(k)
		noise += p * elementOrOnly(l.Noise, k)
		for j, w := range optimum {
			hessian[j] += p * elementOrOnly(r, j)
			pulled[j] += p * elementOrOnly(r, j) * w
			square[j] += p * elementOrOnly(r, j) * w * w
		}
	}
	q := &quadratic{diagonal: hessian, minimizer: make([]float64, n), minimum: noise / 2}
	for j := range n {
		q.minimizer[j] = pulled[j] / hessian[j]
		q.minimum += max(0, square[j]-pulled[j]*q.minimizer[j]) / 2
	}
	return q
}

// shares returns a function that returns the normalised weight of agent k. The given weights may have any scale; nil
// means equal weights.
func shares(weights []float64, agents int) func(k int) float64 {
	if weights == nil {
		return func(int) float64 { return 1 / float64(agents) }
	}
	total := 0.0
	for _, v := range weights {
		total += v
	}
	return func(k int) float64 { return weights[k] / total }
}

// linearStream draws a new sample for each call: first the coordinates of the regressor h, then the noise v.
type linearStream[T learner.Float] struct {
	*normals
	set       bool
	optimum   []float64
	deviation []float64 // standard deviation of each regressor
	noise     float64   // standard deviation of the noise v
}

func (s *linearStream[T]) become(l *linear, k int) {
	l.optimum(s.optimum, k)
	r := l.regressors(k)
	for j := range s.deviation {
		s.deviation[j] = math.Sqrt(elementOrOnly(r, j))
	}
	s.noise = math.Sqrt(elementOrOnly(l.Noise, k))
	s.set = true
}

// Sample implements learner.SampleStream.
func (s *linearStream[T]) Sample(x []T) T {
	sum, pcg := 0.0, s.pcg
	deviation, optimum := s.deviation[:len(x)], s.optimum[:len(x)]
	for j := range x {
		u := pcg.Uint64()
		// This code is the method next, inlined, because a call would take half of the time of a draw.
		z, ok := quickNormal(u)
		if !ok {
			z = s.other(u)
		}
		h := T(deviation[j] * z)
		x[j] = h
		sum += float64(float64(h) * optimum[j])
	}
	return T(sum + float64(s.noise*s.next()))
}
