package data

import (
	"fmt"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
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
	KindBlobs      Kind = "blobs"      // a table of Gaussian classes, dealt to the agents
	KindCSV        Kind = "csv"        // a table in a file, dealt to the agents
)

// Spec describes a problem in a configuration file. A kind ignores the keys that it does not use.
type Spec struct {
	Kind Kind `yaml:"kind" json:"kind"`
	// Fresh draws a new instance for every run; else all runs share one.
	Fresh  bool    `yaml:"fresh" json:"fresh"`
	Inputs int     `yaml:"inputs" json:"inputs"` // M, d: features of a sample
	Start  Numbers `yaml:"start" json:"start"`   // w_0; one number = for all parameters; empty = the model's

	RegressorVar Numbers `yaml:"regressor_var" json:"regressor_var"` // linear: diagonal of R, or σ_h²
	// linear: diagonals of R_k, one row an agent; empty = RegressorVar
	Regressors [][]float64 `yaml:"regressors" json:"regressors"`
	NoiseVar   Numbers     `yaml:"noise_var" json:"noise_var"` // linear: σ_v², or one an agent
	Optima     [][]float64 `yaml:"optima" json:"optima"`       // linear: w_k⁰, one row an agent; empty = drawn
	Centre     Numbers     `yaml:"centre" json:"centre"`       // linear: mean of the w_k⁰; toy: mean of the class +1
	Spread     float64     `yaml:"spread" json:"spread"`       // linear: σ_w²; toy: how uneven the classes are, 0 to 1
	Pool       int         `yaml:"pool" json:"pool"`           // linear: rows that all agents share; 0 = fresh samples

	// logistic, bilinear: m_k, one row an agent; empty = those of the experiment `saddle`
	Means    [][]float64 `yaml:"means" json:"means"`
	Variance float64     `yaml:"variance" json:"variance"` // logistic, bilinear, toy, blobs: of h around its mean

	Rows      int     `yaml:"rows" json:"rows"`           // regression, toy: of each agent; blobs: in all
	Deviation float64 `yaml:"deviation" json:"deviation"` // regression: of the elements of X_i
	Base      float64 `yaml:"base" json:"base"`           // regression: c_i = base^i

	Eigenvalues Numbers `yaml:"eigenvalues" json:"eigenvalues"` // quadratics: of A
	// quadratics: c_i, one row an agent; empty = those of the experiment `bound`
	Centres [][]float64 `yaml:"centres" json:"centres"`

	// Quadratics is a file of quadratics of any shape, with their agents' steps and weights: see [Forms], which are
	// what was read.
	Quadratics string         `yaml:"quadratics" json:"quadratics,omitempty"`
	Forms      *QuadraticFile `yaml:"-" json:"-"`

	File string `yaml:"file" json:"file"` // csv: plain or .gz, columns named in the first line
	// csv: another file, to score the model on; empty = all agents' rows
	HeldOut string `yaml:"held_out" json:"held_out"`
	// csv, blobs: the share of each agent's rows, the last ones, that it does not train on: its own model is scored on
	// them
	OwnHeldOut float64  `yaml:"own_held_out" json:"own_held_out"`
	Features   []string `yaml:"features" json:"features"` // csv: columns
	Target     string   `yaml:"target" json:"target"`     // csv: column
	// csv, blobs: columns by their mean and deviation over all agents, also the target of a regression
	Standardize bool `yaml:"standardize" json:"standardize"`
	// Model learns from a table. Of the kinds with a model of their own, logistic takes its ridge, and bilinear that
	// and one number of hidden units, 3 if there is none.
	Model spec.Model `yaml:"model" json:"model"`

	Partition Partition `yaml:"partition" json:"partition"` // csv, blobs
	Device    string    `yaml:"device" json:"device"`       // partition column: the column that names the agent
	Alpha     float64   `yaml:"alpha" json:"alpha"`         // partition dirichlet: small = uneven
	Shards    int       `yaml:"shards" json:"shards"`       // partition shards: pieces for each agent
}

// DefaultSpec is the lecture's Lab #1, homogeneous.
func DefaultSpec() Spec {
	return Spec{
		Kind: KindLinear, Inputs: 10, RegressorVar: Numbers{1}, NoiseVar: Numbers{0.1}, Centre: Numbers{1}, Variance: 1,
		Rows: 10, Deviation: 0.25, Base: 2, Partition: PartitionUniform, Alpha: 0.5, Shards: 2,
		Model: spec.Model{Kind: spec.ModelLinear, Activation: spec.ActivationTanh, Risk: spec.LossSquared},
	}
}

// Streams tells whether agents draw fresh samples, and hold no rows.
func (s *Spec) Streams() bool {
	return s.Kind == KindLogistic || s.Kind == KindBilinear || s.Kind == KindLinear && s.Pool == 0
}

// Table tells whether the data are rows of a table, dealt to the agents.
func (s *Spec) Table() bool { return s.Kind == KindBlobs || s.Kind == KindCSV }

// architecture is the model of a table.
func (s *Spec) architecture(inputs int) learner.Architecture {
	m := &s.Model
	return learner.Architecture{
		Kind: m.Kind, Inputs: inputs, Convolution: m.Convolution, HiddenUnits: m.HiddenUnits, Outputs: m.OutputCount(),
		Activation: m.Activation, Risk: m.EffectiveLossKind(), HasBias: m.HasBias, Ridge: m.Ridge,
		HuberDelta: m.HuberDelta,
	}
}

// bilinearUnits is the number of units of w₁ in 2nd-order (40).
func (s *Spec) bilinearUnits() int {
	if len(s.Model.HiddenUnits) == 0 {
		return 3
	}
	return s.Model.HiddenUnits[0]
}

// Build makes the instance of a seed for K agents of weights p_k: in any scale, nil for equal ones, or with byRows in
// proportion to the rows that they hold. K may be 0 where a table names the agents. The error is a [*spec.FieldError]
// where a key is to blame.
func Build[T learner.Float](s Spec, agents int, weights []float64, byRows bool, seed uint64) (*Problem[T], error) {
	if err := checkWeights(weights, agents); err != nil && agents > 0 {
		return nil, err
	}
	p, err := build[T](&s, agents, weights, byRows, seed)
	if err != nil {
		return nil, err
	}
	if d := p.Model.ParameterCount(); len(s.Start) == 1 {
		p.Start = make([]float64, d)
		for j := range p.Start {
			p.Start[j] = s.Start[0]
		}
	} else if len(s.Start) > 0 {
		p.Start = s.Start
	}
	return p, nil
}

// checkWeights wants a weight for each agent, or none at all.
func checkWeights(weights []float64, agents int) error {
	if weights != nil && len(weights) != agents {
		return &spec.FieldError{Key: "weights",
			Problem: fmt.Sprintf("has %d numbers; 1 for all, or one for each of the %d agents", len(weights), agents)}
	}
	return nil
}

func build[T learner.Float](s *Spec, agents int, weights []float64, byRows bool, seed uint64) (*Problem[T], error) {
	switch s.Kind {
	case KindLinear:
		l := Linear{Inputs: s.Inputs, Regressors: s.Regressors, Noise: s.NoiseVar, Optima: s.Optima, Centre: s.Centre,
			Spread: s.Spread}
		if len(l.Regressors) == 0 {
			l.Regressors = [][]float64{s.RegressorVar}
		}
		if len(l.Optima) == 0 {
			l.Optima = nil
		}
		if s.Pool > 0 {
			return newPooled[T](l, s.Pool, agents, weights, seed), nil
		}
		return NewLinear[T](l, agents, weights, seed), nil
	case KindLogistic, KindBilinear:
		c := Classes{Means: s.Means, Variance: s.Variance, Ridge: s.Model.Ridge}
		if s.Kind == KindBilinear {
			c.Hidden = s.bilinearUnits()
		}
		if len(c.Means) == 0 {
			c.Means = SaddleMeans(agents, s.Inputs)
		}
		return NewClasses[T](c, weights), nil
	case KindRegression:
		r := Regression{Inputs: s.Inputs, Rows: s.Rows, Deviation: s.Deviation, Base: s.Base}
		return NewSquares(regressionRows[T](r, agents, seed), 0, weights)
	case KindQuadratics:
		if s.Forms != nil {
			return NewForms[T](s.Forms, weights)
		}
		q := Quadratics{Eigenvalues: s.Eigenvalues, Centres: s.Centres}
		if len(q.Centres) == 0 {
			q.Centres = BoundCentres(agents, len(s.Eigenvalues))
		}
		return NewQuadratics[T](q, weights)
	case KindToy:
		return NewToy[T](Toy{Mean: s.Centre, Variance: s.Variance, Rows: s.Rows, Skew: s.Spread}, agents, weights, seed)
	case KindBlobs, KindCSV:
		return newTable[T](s, agents, weights, byRows, seed)
	}
	return nil, fmt.Errorf("data.kind: unknown kind %q", s.Kind)
}
