package data

import (
	"fmt"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// Kind names a kind of problem.
type Kind string

// Kinds of problems.
const (
	KindLinear     Kind = "linear"     // Linear
	KindLogistic   Kind = "logistic"   // Classes with a logistic regression
	KindBilinear   Kind = "bilinear"   // Classes with the bilinear network
	KindRegression Kind = "regression" // Regression of feddec
	KindQuadratics Kind = "quadratics" // Quadratics of the notes' bound
	KindToy        Kind = "toy"        // Toy, the classifier of the notes
	KindBlobs      Kind = "blobs"      // table of Gaussian classes, distributed to the agents
	KindCSV        Kind = "csv"        // table in a file, distributed to the agents
)

// Spec describes a problem in a configuration file. Keys that a kind does not use are ignored.
type Spec struct {
	Kind Kind `yaml:"kind" json:"kind"`
	// Fresh draws a new instance for every run; otherwise all runs share one instance.
	Fresh  bool    `yaml:"fresh" json:"fresh"`
	Inputs int     `yaml:"inputs" json:"inputs"` // number of features: M, d
	Start  Numbers `yaml:"start" json:"start"`   // w_0; one number sets all elements; empty means the model's

	RegressorVar Numbers `yaml:"regressor_var" json:"regressor_var"` // linear: diagonal of R, or σ_h²
	// Regressors holds the diagonals of R_k for linear, one row per agent; empty means RegressorVar.
	Regressors [][]float64 `yaml:"regressors" json:"regressors"`
	NoiseVar   Numbers     `yaml:"noise_var" json:"noise_var"` // linear: σ_v², one for all agents or one per agent
	Optima     [][]float64 `yaml:"optima" json:"optima"`       // linear: w_k⁰, one row per agent; empty draws them
	Centre     Numbers     `yaml:"centre" json:"centre"`       // linear: mean of the w_k⁰; toy: mean of class +1
	Spread     float64     `yaml:"spread" json:"spread"`       // linear: σ_w²; toy: imbalance of the classes, 0 to 1
	Pool       int         `yaml:"pool" json:"pool"`           // linear: shared rows; 0 means fresh samples

	// Means holds m_k for logistic and bilinear, one row per agent; empty means the means of the experiment `saddle`.
	Means    [][]float64 `yaml:"means" json:"means"`
	Variance float64     `yaml:"variance" json:"variance"` // logistic, bilinear, toy, blobs: variance of h

	Rows      int     `yaml:"rows" json:"rows"`           // regression, toy: rows per agent; blobs: total rows
	Deviation float64 `yaml:"deviation" json:"deviation"` // regression: standard deviation of the elements of X_i
	Base      float64 `yaml:"base" json:"base"`           // regression: c_i = base^i

	Eigenvalues Numbers `yaml:"eigenvalues" json:"eigenvalues"` // quadratics: eigenvalues of A
	// Centres holds c_i for quadratics, one row per agent; empty means the centres of the experiment `bound`.
	Centres [][]float64 `yaml:"centres" json:"centres"`

	// Quadratics is the path of a file with general quadratics and the steps and weights of their agents. Its content
	// is in [Forms].
	Quadratics string         `yaml:"quadratics" json:"quadratics,omitempty"`
	Forms      *QuadraticFile `yaml:"-" json:"-"`

	File string `yaml:"file" json:"file"` // csv: plain or .gz; the first line names the columns
	// HeldOut is the path of another CSV file with test rows for csv; empty means all agents' rows.
	HeldOut string `yaml:"held_out" json:"held_out"`
	// OwnHeldOut is the share of each agent's last rows that are held out to score its personal model; csv and blobs
	// only.
	OwnHeldOut float64  `yaml:"own_held_out" json:"own_held_out"`
	Features   []string `yaml:"features" json:"features"` // csv: feature columns
	Target     string   `yaml:"target" json:"target"`     // csv: target column
	// Standardize scales the columns, and the target of a regression, by mean and standard deviation over all agents;
	// csv and blobs only.
	Standardize bool `yaml:"standardize" json:"standardize"`
	// Model is the model for a table. Kinds with their own model read only some keys: logistic the ridge, bilinear the
	// ridge and the number of hidden units (default 3).
	Model spec.Model `yaml:"model" json:"model"`

	Partition Partition `yaml:"partition" json:"partition"` // csv, blobs
	Device    string    `yaml:"device" json:"device"`       // partition column: name of the agent column
	Alpha     float64   `yaml:"alpha" json:"alpha"`         // partition dirichlet: small values are uneven
	Shards    int       `yaml:"shards" json:"shards"`       // partition shards: number of pieces per agent
}

// DefaultSpec returns the homogeneous Lab #1 of the lecture.
func DefaultSpec() Spec {
	return Spec{
		Kind: KindLinear, Inputs: 10, RegressorVar: Numbers{1}, NoiseVar: Numbers{0.1}, Centre: Numbers{1}, Variance: 1,
		Rows: 10, Deviation: 0.25, Base: 2, Partition: PartitionUniform, Alpha: 0.5, Shards: 2,
		Model: spec.Model{Kind: spec.ModelLinear, Activation: spec.ActivationTanh, Risk: spec.LossSquared},
	}
}

// Streams reports whether agents draw fresh samples instead of storing rows.
func (s *Spec) Streams() bool {
	return s.Kind == KindLogistic || s.Kind == KindBilinear || s.Kind == KindLinear && s.Pool == 0
}

// Table reports whether the data are rows of a table that is distributed to the agents.
func (s *Spec) Table() bool { return s.Kind == KindBlobs || s.Kind == KindCSV }

// architecture returns the model architecture for a table.
func (s *Spec) architecture(inputs int) learner.Architecture {
	m := &s.Model
	return learner.Architecture{
		Kind: m.Kind, Inputs: inputs, Convolution: m.Convolution, HiddenUnits: m.HiddenUnits, Outputs: m.OutputCount(),
		Activation: m.Activation, Risk: m.EffectiveLossKind(), HasBias: m.HasBias, Ridge: m.Ridge,
		HuberDelta: m.HuberDelta,
	}
}

// bilinearUnits returns the number of units of w₁ in 2nd-order (40).
func (s *Spec) bilinearUnits() int {
	if len(s.Model.HiddenUnits) == 0 {
		return 3
	}
	return s.Model.HiddenUnits[0]
}

// Build returns the instance for a seed and K agents of weights p_k in any scale; nil means equal weights. With byRows,
// weights are proportional to the agents' rows. agents may be 0 if a table names the agents. The error is a
// [*spec.FieldError] if it concerns a key.
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

// checkWeights returns an error unless weights is nil or has one weight per agent.
func checkWeights(weights []float64, agents int) error {
	if weights != nil && len(weights) != agents {
		return &spec.FieldError{Key: "weights",
			Problem: fmt.Sprintf("has %d numbers; want 1 for all agents, or one for each of the %d agents",
				len(weights), agents)}
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
