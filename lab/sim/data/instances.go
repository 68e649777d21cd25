package data

import (
	"math"

	"github.com/fedmesh/fedmesh/learner"
)

// Regression describes the regression problem in section 4 of the FedDec paper. The risk of agent i = 1 … n is F_i(z) =
// (1/M)‖X_i z − Y_i‖². The elements of the features X_i are N(0, Deviation²). The targets are Y_i = c_i(v + cos v),
// with v = X_i 𝟙 and c_i = Base^i.
type Regression struct {
	Inputs    int     // number of features (d in the FedDec paper)
	Rows      int     // number of rows per agent (M in the FedDec paper)
	Deviation float64 // standard deviation of the elements of X_i; 0.25 in the FedDec paper
	Base      float64 // base of the factors c_i; 2 in the FedDec paper
}

// NewRegression returns an instance with agents of equal weight. Rows are stored as √2·x and √2·y, so that the squared
// loss ½(√2y − √2xᵀz)² gives the risk F_i of the FedDec paper, and the gradient of one row is 2x(xᵀz − y).
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

// Quadratics describes clients with the risks F_i(x) = ½(x − c_i)ᵀA(x − c_i) of the experiment `bound`. The matrix A =
// diag(Eigenvalues) is diagonal. The gradients are exact; if there is noise, the algorithm adds it.
type Quadratics struct {
	Eigenvalues []float64
	Centres     [][]float64 // centre c_i of each client
	Start       []float64   // initial model x_0; nil means 0
}

// BoundCentres returns the centres of the experiment `bound`: element j of centre i is 2 sin(1.3(i+1)(j+1)).
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

// NewQuadratics returns a problem with the risks that q describes. The risk F_i is the squared risk of d rows
// √(d·A_jj)·e_j with targets √(d·A_jj)·c_i[j]. Therefore the gradient over all rows is A(x − c_i).
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

// Toy describes the classifier in section 3.1 of Renard's notes: a linear model with the squared loss (ŷ − y)² for two
// Gaussian classes y = ±1 with means ±Mean. The rows are drawn once and stored.
type Toy struct {
	Mean     []float64
	Variance float64
	Rows     int     // number of rows per agent
	Skew     float64 // the share of class +1 rises from ½ − Skew/2 at the first agent to ½ + Skew/2 at the last agent
}

// NewToy returns a problem with the rows that t describes, scaled by √2 as in [NewRegression]. The scaling does not
// change the sign of a score. The additional metric `accuracy` is computed over the rows of all agents.
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

// signAccuracy returns the share of rows in which the prediction hᵀw has the same sign as the target.
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
