package data

import (
	"math"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// quadraticMost is the largest number of parameters for which the properties of a least-squares problem are computed.
// The computation takes cubic time for every agent.
const quadraticMost = 200

// NewRows returns a problem with stored rows for any model. The weights of the agents may have any scale; nil means
// equal weights. A small least-squares problem has the same known properties as in [NewSquares]. For all other
// problems, only the risk and its gradient over all rows are known.
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
		m, err := learner.NewModel[T](model) // Create a model per call, because calls may be concurrent.
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

// scaled returns a copy of the rows in which features and targets are multiplied by c.
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

// Scores returns the metric `accuracy` for classification or `r2` for regression, evaluated on test. Scores returns nil
// for a model without a target.
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
