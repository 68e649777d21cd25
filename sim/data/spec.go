package data

import (
	"fmt"

	"github.com/fedmesh/fedmesh/learner"
)

// Kind is a kind of problem.
type Kind string

// The kinds.
const (
	KindLinear     Kind = "linear"     // Linear
	KindLogistic   Kind = "logistic"   // Classes with a logistic regression
	KindBilinear   Kind = "bilinear"   // Classes with the bilinear network
	KindRegression Kind = "regression" // Regression, feddec's
	KindQuadratics Kind = "quadratics" // Quadratics, those of the notes' bound
	KindToy        Kind = "toy"        // Toy, the notes' classifier
)

// Spec describes a problem in a configuration file. What a kind does not use is ignored by it.
type Spec struct {
	Kind Kind `yaml:"kind" json:"kind"`
	// Fresh draws a new instance for every run; else all runs share one.
	Fresh  bool `yaml:"fresh" json:"fresh"`
	Inputs int  `yaml:"inputs" json:"inputs"` // M, d: features of a sample

	Regressors [][]float64 `yaml:"regressors" json:"regressors,omitempty"` // linear: diagonals of R_k
	NoiseVar   []float64   `yaml:"noise_var" json:"noise_var,omitempty"`   // linear: σ_v²
	Optima     [][]float64 `yaml:"optima" json:"optima,omitempty"`         // linear: w_k⁰
	Centre     []float64   `yaml:"centre" json:"centre,omitempty"`         // linear: mean of the w_k⁰; toy: mean of the class +1
	Pool       int         `yaml:"pool" json:"pool"`                       // linear: rows that all agents share; 0 = fresh samples
	Spread     float64     `yaml:"spread" json:"spread"`                   // linear: σ_w²; toy: how uneven the classes are

	Means    [][]float64 `yaml:"means" json:"means,omitempty"` // logistic, bilinear: m_k; empty = those of SPEC's `saddle`
	Variance float64     `yaml:"variance" json:"variance"`     // logistic, bilinear, toy: of h around its mean
	Ridge    float64     `yaml:"ridge" json:"ridge"`           // ρ
	Hidden   int         `yaml:"hidden" json:"hidden"`         // bilinear: units of w₁

	Rows      int     `yaml:"rows" json:"rows"`           // regression, toy: of each agent
	Deviation float64 `yaml:"deviation" json:"deviation"` // regression: of the elements of X_i
	Base      float64 `yaml:"base" json:"base"`           // regression: c_i = base^i

	Eigenvalues []float64   `yaml:"eigenvalues" json:"eigenvalues,omitempty"` // quadratics: of A
	Centres     [][]float64 `yaml:"centres" json:"centres,omitempty"`         // quadratics: c_i; empty = those of SPEC's `bound`
	Start       []float64   `yaml:"start" json:"start,omitempty"`             // w_0; one number = for all parameters; empty = the model's
}

// DefaultSpec is the lecture's Lab #1, homogeneous.
func DefaultSpec() Spec {
	return Spec{
		Kind: KindLinear, Inputs: 10, Regressors: [][]float64{{1}}, NoiseVar: []float64{0.1}, Centre: []float64{1},
		Variance: 1, Hidden: 3, Rows: 10, Deviation: 0.25, Base: 2,
	}
}

// Build makes the instance of a seed for K agents of weights p_k (nil = equal).
func Build[T learner.Float](s Spec, agents int, weights []float64, seed uint64) (*Problem[T], error) {
	p, err := build[T](s, agents, weights, seed)
	if err != nil {
		return nil, err
	}
	if d := p.Model.Params(); len(s.Start) == 1 {
		p.Start = make([]float64, d)
		for j := range p.Start {
			p.Start[j] = s.Start[0]
		}
	} else if len(s.Start) > 0 {
		p.Start = s.Start
	}
	return p, nil
}

func build[T learner.Float](s Spec, agents int, weights []float64, seed uint64) (*Problem[T], error) {
	switch s.Kind {
	case KindLinear:
		l := Linear{Inputs: s.Inputs, Regressors: s.Regressors, Noise: s.NoiseVar, Optima: s.Optima, Centre: s.Centre, Spread: s.Spread}
		if s.Pool > 0 {
			return NewPooled[T](l, s.Pool, agents, weights, seed), nil
		}
		return NewLinear[T](l, agents, weights, seed), nil
	case KindLogistic, KindBilinear:
		c := Classes{Means: s.Means, Variance: s.Variance, Ridge: s.Ridge}
		if s.Kind == KindBilinear {
			c.Hidden = s.Hidden
		}
		if len(c.Means) == 0 {
			c.Means = SaddleMeans(agents, s.Inputs)
		}
		return NewClasses[T](c, weights), nil
	case KindRegression:
		return NewRegression[T](Regression{Inputs: s.Inputs, Rows: s.Rows, Deviation: s.Deviation, Base: s.Base}, agents, seed)
	case KindQuadratics:
		q := Quadratics{Eigenvalues: s.Eigenvalues, Centres: s.Centres}
		if len(q.Centres) == 0 {
			q.Centres = BoundCentres(agents, len(s.Eigenvalues))
		}
		return NewQuadratics[T](q, weights)
	case KindToy:
		return NewToy[T](Toy{Mean: s.Centre, Variance: s.Variance, Rows: s.Rows, Skew: s.Spread}, agents, weights, seed)
	}
	return nil, fmt.Errorf("data.kind: unknown kind %q", s.Kind)
}
