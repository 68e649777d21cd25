package data

import (
	"math"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// Classes describes samples of two Gaussian classes γ = ±1 of equal probability, with inputs h = γ·m_k + N(0, σ²I) for
// agent k. Every local step draws new samples. The risk is E ln(1 + exp(−γz)) + (ρ/2)‖w‖². The score z is hᵀw for
// logistic regression (lecture, eq. (15)), and w₁ᵀW₂h for the bilinear network (paper on second-order guarantees, eqs.
// (40)–(41)).
type Classes struct {
	Means    [][]float64 // mean m_k of class +1 for each agent k
	Variance float64     // variance σ² of the inputs
	Ridge    float64     // factor ρ of the ridge penalty
	Hidden   int         // number of hidden units of the bilinear network; 0 means logistic regression
}

// SaddleMeans returns the class means of the experiment `saddle` for K agents and M inputs. Element j of the mean of
// agent k is (0.5 + k/(K−1))/√M + 0.3 cos(2π(k+1)(j+1)/K).
func SaddleMeans(agents, inputs int) [][]float64 {
	means := make([][]float64, agents)
	for k := range means {
		means[k] = make([]float64, inputs)
		along := 0.5
		if agents > 1 {
			along += float64(k) / float64(agents-1)
		}
		for j := range means[k] {
			means[k][j] = along/math.Sqrt(float64(inputs)) +
				0.3*math.Cos(2*math.Pi*float64((k+1)*(j+1))/float64(agents))
		}
	}
	return means
}

// NewClasses returns a problem with one agent per class mean. The weights of the agents may have any scale; nil means
// equal weights.
func NewClasses[T learner.Float](c Classes, weights []float64) *Problem[T] {
	inputs := len(c.Means[0])
	model := learner.Architecture{Inputs: inputs, Outputs: 1, Risk: spec.LossLogistic, Ridge: c.Ridge}
	if c.Hidden > 0 {
		model.HiddenUnits, model.Activation = []int{c.Hidden}, spec.ActivationIdentity
	}
	deviation := math.Sqrt(c.Variance)
	a := &aggregateClasses{Classes: c, share: shares(weights, len(c.Means))}
	objective := a.objective()
	objective.Curvature = ridgeCurvature(model)
	return &Problem[T]{
		Model: model, Agents: len(c.Means), Weights: weights, Objective: objective, Classes: &c,
		Loader: func(pcg *rand.PCG) Loader[T] {
			s := &classStream[T]{normals: newNormals(pcg), deviation: deviation}
			return func(k int) Local[T] {
				s.mean = c.Means[k]
				return Local[T]{Stream: s}
			}
		},
	}
}

// classStream draws a new sample for each call: first the class γ, then the coordinates of the input h.
type classStream[T learner.Float] struct {
	*normals
	mean      []float64
	deviation float64
}

// Sample implements learner.SampleStream.
func (s *classStream[T]) Sample(x []T) T {
	y := 1.0
	if s.pcg.Uint64()>>63 == 0 {
		y = -1
	}
	for j := range x {
		x[j] = T(y*s.mean[j] + float64(s.deviation*s.next()))
	}
	return T(y)
}

// ridgeCurvature returns a function for Objective.Curvature that returns the ridge penalty. It returns nil unless the
// risk is convex and its gradient without the ridge is bounded.
func ridgeCurvature(model learner.Architecture) func(k int) float64 {
	bounded := model.Risk == spec.LossLogistic || model.Risk == spec.LossSoftmax
	if !bounded || len(model.HiddenUnits) > 0 || model.Ridge == 0 {
		return nil
	}
	return func(int) float64 { return model.Ridge }
}
