package data

import (
	"math"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// quadraticMost is the largest number of parameters for which least squares are solved. The eigenvalues of every agent
// take cubic time.
const quadraticMost = 200

// NewRows returns a problem of stored samples for any model, with weights p_k in any scale; nil means equal weights.
// For small least-squares problems it returns the same properties as [NewSquares]. For all others, only the risk and
// its gradient over all rows are known.
func NewRows[T learner.Float](model learner.Architecture, held []*learner.Samples[T], weights []float64) (*Problem[T],
	error) {
	linear := model.LayerCount() == 1 && !model.HasBias && model.ParameterCount() <= quadraticMost
	if linear && model.Risk == spec.LossSquared {
		return NewSquares(held, model.Ridge, weights)
	}
	p, err := NewHeld(model, held)
	if err != nil {
		return nil, err
	}
	p.Weights = weights
	if linear && model.Risk == spec.LossFullSquared {
		half, err := NewSquares(scaled(held, math.Sqrt2), model.Ridge, weights) // ½(√2γ − √2hᵀw)² = (γ − hᵀw)²
		if err != nil {
			return nil, err
		}
		p.Objective = half.Objective
		return p, nil
	}
	share := shares(weights, len(held))
	each := func(w []float64, take func(k int, m *learner.Model[T], w []T)) {
		m, err := learner.NewModel[T](model) // one model per call: calls may be concurrent
		if err != nil {
			panic("data: " + err.Error()) // the simulator has validated the model
		}
		at := make([]T, len(w))
		for j, v := range w {
			at[j] = T(v)
		}
		for k := range held {
			take(k, m, at)
		}
	}
	p.Objective.Curvature = ridgeCurvature(model)
	p.Objective.Risk = func(w []float64) float64 {
		sum := 0.0
		each(w, func(k int, m *learner.Model[T], w []T) { sum += share(k) * m.Risk(w, held[k].All()) })
		return sum
	}
	p.Objective.Gradient = func(dst, w []float64) {
		clear(dst)
		grad := make([]T, len(w))
		each(w, func(k int, m *learner.Model[T], w []T) {
			m.Gradient(grad, w, held[k].All())
			for j, g := range grad {
				dst[j] += share(k) * float64(g)
			}
		})
	}
	return p, nil
}

// scaled returns a copy of the rows multiplied by c.
func scaled[T learner.Float](held []*learner.Samples[T], c float64) []*learner.Samples[T] {
	out := make([]*learner.Samples[T], len(held))
	for k, s := range held {
		all := s.All()
		x, y := make([]T, len(all.X)), make([]T, len(all.Y))
		for i, v := range all.X {
			x[i] = T(c * float64(v))
		}
		for i, v := range all.Y {
			y[i] = T(c * float64(v))
		}
		out[k] = learner.NewSamples(s.FeatureCount(), x, y)
	}
	return out
}

// Scores returns the metric `accuracy`, or `r2` for a regression, on test samples. A model without a target has
// neither.
func Scores[T learner.Float](model learner.Architecture, test *learner.Samples[T]) []Metric {
	if !model.HasTarget() {
		return nil
	}
	name := "accuracy"
	if model.Risk.IsRegression() {
		name = "r2"
	}
	return []Metric{{Name: name, Of: func(w []float64) float64 {
		m, err := learner.NewModel[T](model)
		if err != nil {
			panic("data: " + err.Error()) // the simulator has validated the model
		}
		at := make([]T, len(w))
		for j, v := range w {
			at[j] = T(v)
		}
		score := m.Score(at, test)
		if name == "r2" {
			return score.R2
		}
		return score.Accuracy
	}}}
}
