package data

import (
	"math"

	"github.com/fedmesh/fedmesh/learner"
)

// Regression is feddec's problem: F_i(z) = (1/M)‖X_i z − Y_i‖² with the elements of X_i ~ N(0, Deviation²),
// Y_i = c_i(v + cos v), v = X_i 𝟙 and c_i = Base^i, i = 1 … n (feddec section 4).
type Regression struct {
	Inputs    int     // d
	Rows      int     // M
	Deviation float64 // 0.25 in feddec
	Base      float64 // 2 in feddec
}

// NewRegression makes an instance with n agents of equal weights. Rows are held as √2·x, √2·y, whose squared risk ½(√2y
// − √2xᵀz)² is F_i and whose gradient for one row is 2x(xᵀz − y).
func NewRegression[T learner.Float](r Regression, agents int, seed uint64) (*Problem[T], error) {
	return NewSquares(regressionRows[T](r, agents, seed), 0, nil)
}

func regressionRows[T learner.Float](r Regression, agents int, seed uint64) []*learner.Samples[T] {
	held := make([]*learner.Samples[T], agents)
	for k := range held {
		rng := source(seed, forRows, k)
		x, y := make([]T, r.Rows*r.Inputs), make([]T, r.Rows)
		for i := range y {
			v := 0.0
			for j := range r.Inputs {
				h := r.Deviation * rng.NormFloat64()
				v += h
				x[i*r.Inputs+j] = T(math.Sqrt2 * h)
			}
			y[i] = T(math.Sqrt2 * math.Pow(r.Base, float64(k+1)) * (v + math.Cos(v)))
		}
		held[k] = learner.NewSamples(r.Inputs, x, y)
	}
	return held
}

// Quadratics is the clients F_i(x) = ½(x − c_i)ᵀA(x − c_i) with A = diag(Eigenvalues) of the experiment `bound`. Their
// gradient is exact; noise is the algorithm's perturbation.
type Quadratics struct {
	Eigenvalues []float64
	Centres     [][]float64 // c_i, one each
	Start       []float64   // x_0; nil = 0
}

// BoundCentres is c_i[j] = 2 sin(1.3(i+1)(j+1)), the centres of the experiment `bound`.
func BoundCentres(agents, inputs int) [][]float64 {
	centres := make([][]float64, agents)
	for i := range centres {
		centres[i] = make([]float64, inputs)
		for j := range centres[i] {
			centres[i][j] = 2 * math.Sin(1.3*float64((i+1)*(j+1)))
		}
	}
	return centres
}

// NewQuadratics makes the instance. F_i is the squared risk of the d rows √(d·A_jj)·e_j with targets √(d·A_jj)·c_i[j]:
// a local step over all of them has the gradient A(x − c_i).
func NewQuadratics[T learner.Float](q Quadratics, weights []float64) (*Problem[T], error) {
	d := len(q.Eigenvalues)
	held := make([]*learner.Samples[T], len(q.Centres))
	for k, c := range q.Centres {
		x, y := make([]T, d*d), make([]T, d)
		for j, v := range q.Eigenvalues {
			root := math.Sqrt(float64(d) * v)
			x[j*d+j], y[j] = T(root), T(root*c[j])
		}
		held[k] = learner.NewSamples(d, x, y)
	}
	p, err := NewSquares(held, 0, weights)
	if err != nil {
		return nil, err
	}
	p.Start = q.Start
	return p, nil
}

// Toy is the classifier of notes 3.1: ŷ = wᵀx under the loss (ŷ − y)² for two Gaussian classes y = ±1 around ±Mean,
// whose rows the agents hold.
type Toy struct {
	Mean     []float64
	Variance float64
	Rows     int     // of each agent
	Skew     float64 // the share of y = +1 goes from ½ − Skew/2 at the first agent to ½ + Skew/2 at the last
}

// NewToy makes an instance with K agents. Rows are held as √2·x, √2·y, as in [NewRegression]: a score's sign is that of
// √2·wᵀx. Besides the usual metrics it has `accuracy`, over all agents' rows.
func NewToy[T learner.Float](t Toy, agents int, weights []float64, seed uint64) (*Problem[T], error) {
	d := len(t.Mean)
	held := make([]*learner.Samples[T], agents)
	for k := range held {
		rng := source(seed, forRows, k)
		positive := 0.5
		if agents > 1 {
			positive += t.Skew * (float64(k)/float64(agents-1) - 0.5)
		}
		x, y := make([]T, t.Rows*d), make([]T, t.Rows)
		for i := range y {
			label := -1.0
			if rng.Float64() < positive {
				label = 1
			}
			for j, m := range t.Mean {
				x[i*d+j] = T(math.Sqrt2 * (label*m + math.Sqrt(t.Variance)*rng.NormFloat64()))
			}
			y[i] = T(math.Sqrt2 * label)
		}
		held[k] = learner.NewSamples(d, x, y)
	}
	p, err := NewSquares(held, 0, weights)
	if err != nil {
		return nil, err
	}
	p.Metrics = []Metric{{Name: "accuracy", Of: func(w []float64) float64 { return signAccuracy(held, w) }}}
	return p, nil
}

// signAccuracy is the share of rows whose target has the sign of hᵀw.
func signAccuracy[T learner.Float](held []*learner.Samples[T], w []float64) float64 {
	hits, rows := 0, 0
	for _, s := range held {
		for i := range s.Len() {
			x, y := s.Row(i)
			z := 0.0
			for j, v := range x {
				z += float64(v) * w[j]
			}
			if z > 0 == (y > 0) {
				hits++
			}
			rows++
		}
	}
	return float64(hits) / float64(rows)
}
