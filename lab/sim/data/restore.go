package data

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// Restored describes an instance that was created elsewhere. Only Model and Agents are required.
type Restored[T learner.Float] struct {
	Model   learner.Architecture
	Agents  int
	Weights []float64

	Start     []float64
	Minimizer []float64
	Hessian   []float64 // Hessian of a quadratic J, d·d numbers; requires Minimizer
	Minimum   float64
	Means     [][]float64 // class mean of each agent, for logistic and bilinear problems
	Variance  float64
	Linear    *Linear // linear problem with the optimum of each agent
	Held      []*learner.Samples[T]
}

// Restore returns the problem that r describes. If r has none of Held, Linear and Means, the agents have no data, and
// all draws must be replayed. Restore returns an error if the fields are inconsistent.
func Restore[T learner.Float](r Restored[T]) (*Problem[T], error) {
	if r.Weights != nil && len(r.Weights) != r.Agents {
		return nil, fmt.Errorf("got %d weights for %d agents", len(r.Weights), r.Agents)
	}
	for k, v := range r.Weights {
		if !(v > 0) {
			return nil, fmt.Errorf("the weight of agent %d is %v; want a positive number", k, v)
		}
	}
	if r.Linear != nil && r.Held == nil {
		return restoreLinear(r)
	}
	p := &Problem[T]{Model: r.Model, Agents: r.Agents}
	if r.Held != nil {
		rows, err := NewRows(r.Model, r.Held, r.Weights)
		if err != nil {
			return nil, err
		}
		p = rows
	} else {
		p.Loader = func(*rand.PCG) Loader[T] { return func(int) Local[T] { return Local[T]{} } }
	}
	p.Weights, p.Start = r.Weights, r.Start
	switch {
	case r.Hessian != nil:
		if r.Minimizer == nil {
			return nil, errors.New("a Hessian is given but no minimiser")
		}
		if norm := floats.Norm(r.Hessian, 1); math.IsNaN(norm) || math.IsInf(norm, 0) {
			return nil, errors.New("the Hessian is not finite")
		}
		q := &quadratic{full: mat.NewSymDense(len(r.Minimizer), r.Hessian), minimizer: r.Minimizer, minimum: r.Minimum}
		known := p.Objective // the properties of the risk that were computed from the agents' rows
		p.Objective = q.objective()
		p.Objective.Smoothness, p.Objective.Curvature = known.Smoothness, known.Curvature
	case r.Means != nil:
		hidden := 0
		if len(r.Model.HiddenUnits) > 0 {
			hidden = r.Model.HiddenUnits[0]
		}
		p.Classes = &Classes{Means: r.Means, Variance: r.Variance, Ridge: r.Model.Ridge, Hidden: hidden}
		if r.Held == nil {
			p.Loader = NewClasses[T](*p.Classes, r.Weights).Loader
		}
		a := &aggregateClasses{Classes: *p.Classes, share: shares(r.Weights, r.Agents)}
		p.Objective = a.objective()
	}
	if r.Minimizer != nil {
		p.Objective.Minimizer = r.Minimizer
	}
	return p, nil
}

func restoreLinear[T learner.Float](r Restored[T]) (*Problem[T], error) {
	l := *r.Linear
	if r.Model.ParameterCount() != l.Inputs || r.Model.Risk != spec.LossSquared || r.Model.Ridge != 0 {
		return nil, errors.New("optima require a linear model with the squared risk and without bias or ridge")
	}
	for _, list := range []struct {
		name    string
		rows    [][]float64
		allowed func(v float64) bool
	}{
		{"optima", l.Optima, func(float64) bool { return true }},
		{"regressors", l.Regressors, func(v float64) bool { return v > 0 }},
		{"noise_var", [][]float64{l.Noise}, func(v float64) bool { return v >= 0 }},
	} {
		for k, row := range list.rows {
			for _, v := range row {
				if math.IsNaN(v) || math.IsInf(v, 0) || !list.allowed(v) {
					return nil, fmt.Errorf("%s: row %d has the invalid value %v", list.name, k, v)
				}
			}
		}
	}
	p := NewLinear[T](l, r.Agents, r.Weights, 0)
	p.Start = r.Start
	return p, nil
}
