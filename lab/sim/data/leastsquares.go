package data

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// NewSquares returns a least-squares problem with stored rows, for a linear model without bias and with ridge penalty
// ρ. The aggregate risk Σ p_k (1/n_k)Σ ½(γ − hᵀw)² + (ρ/2)‖w‖² is known exactly. NewSquares returns an error if an
// agent has no rows, or rows whose squares are not finite.
func NewSquares[T learner.Float](held []*learner.Samples[T], ridge float64, weights []float64) (*Problem[T], error) {
	p, err := NewHeld(learner.Architecture{Inputs: held[0].FeatureCount(), Outputs: 1, Risk: spec.LossSquared,
		Ridge: ridge},
		held)
	if err != nil {
		return nil, err
	}
	n := held[0].FeatureCount()
	p.Weights = weights
	share := shares(weights, len(held))
	total := mat.NewSymDense(n, nil)
	curvature := make([]float64, len(held))
	smoothness := 0.0
	for k, s := range held {
		h := hessian(s, ridge)
		if norm := mat.Norm(h, 1); math.IsNaN(norm) || math.IsInf(norm, 0) {
			return nil, fmt.Errorf("the squares of the rows of agent %d are not finite", k)
		}
		values := eigenvalues(h)
		curvature[k] = values[n-1]
		smoothness = max(smoothness, curvature[k])
		h.ScaleSym(share(k), h)
		total.AddSym(total, h)
	}
	q := &quadratic{full: total}
	q.minimizer, q.minimum = solveRows(held, ridge, share)
	p.Objective = q.objective()
	p.Objective.Smoothness = smoothness
	p.Objective.Curvature = func(k int) float64 { return curvature[k] }
	return p, nil
}

// NewHeld returns a problem with stored rows for any model. It does not compute any property of the aggregate risk. It
// returns an error if there are no agents or if an agent has no rows.
func NewHeld[T learner.Float](model learner.Architecture, held []*learner.Samples[T]) (*Problem[T], error) {
	if len(held) == 0 {
		return nil, errors.New("no agents")
	}
	for k, s := range held {
		if s.Len() == 0 {
			return nil, fmt.Errorf("agent %d has no rows", k)
		}
	}
	return &Problem[T]{
		Model: model, Agents: len(held),
		Loader: func(*rand.PCG) Loader[T] { return func(k int) Local[T] { return Local[T]{Samples: held[k]} } },
	}, nil
}

// hessian returns the Hessian (1/n)Σ hhᵀ + ρI of the least-squares risk of s, where ρ is the ridge.
func hessian[T learner.Float](s *learner.Samples[T], ridge float64) *mat.SymDense {
	n := s.FeatureCount()
	h, x := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	for i := range s.Len() {
		row, _ := s.Row(i)
		for j, v := range row {
			x.SetVec(j, float64(v))
		}
		h.SymRankOne(h, 1/float64(s.Len()), x)
	}
	for j := range n {
		h.SetSym(j, j, h.At(j, j)+ridge)
	}
	return h
}

// solveRows returns the minimiser of the aggregate risk; if there are several, it returns the minimiser with the
// smallest norm. It uses a singular value decomposition of all rows, scaled by √(p_k/n_k). The normal equations would
// lose precision, because the targets differ by powers of two (FedDec paper, section 4).
func solveRows[T learner.Float](held []*learner.Samples[T], ridge float64, share func(k int) float64) (w []float64,
	minimum float64) {
	n, rows := held[0].FeatureCount(), 0
	for _, s := range held {
		rows += s.Len()
	}
	extra := 0
	if ridge > 0 || rows < n {
		extra = n
	}
	a, b := mat.NewDense(rows+extra, n, nil), mat.NewVecDense(rows+extra, nil)
	at := 0
	for k, s := range held {
		scale := math.Sqrt(share(k) / float64(s.Len()))
		for i := range s.Len() {
			x, y := s.Row(i)
			for j, v := range x {
				a.Set(at, j, scale*float64(v))
			}
			b.SetVec(at, scale*float64(y))
			at++
		}
	}
	for j := range extra {
		a.Set(at+j, j, math.Sqrt(ridge))
	}
	var svd mat.SVD
	if !svd.Factorize(a, mat.SVDThin) {
		panic(fmt.Sprintf("data: cannot compute the singular values of a matrix with %d rows and %d columns", rows, n))
	}
	var solution, miss mat.VecDense
	svd.SolveVecTo(&solution, b, svd.Rank(1e-13))
	miss.MulVec(a, &solution)
	miss.SubVec(&miss, b)
	norm := mat.Norm(&miss, 2)
	return solution.RawVector().Data, norm * norm / 2
}
