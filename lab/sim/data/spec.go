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
	KindLinear     Kind = "linear"     // linear model; see Linear
	KindLogistic   Kind = "logistic"   // logistic regression on two Gaussian classes
	KindBilinear   Kind = "bilinear"   // bilinear network on two Gaussian classes
	KindRegression Kind = "regression" // regression problem of the FedDec paper
	KindQuadratics Kind = "quadratics" // quadratic risks of the bound in Renard's notes
	KindToy        Kind = "toy"        // linear classifier of Renard's notes
	KindBlobs      Kind = "blobs"      // rows of Gaussian classes, distributed to the agents
	KindCSV        Kind = "csv"        // rows of a CSV file, distributed to the agents
)

// Spec describes a problem in a configuration file. A kind of problem ignores the keys that it does not use.
type Spec struct {
	Kind Kind `yaml:"kind" json:"kind"`
	// Fresh draws a new instance of the problem for every run. Otherwise all runs share one instance.
	Fresh  bool `yaml:"fresh" json:"fresh"`
	Inputs int  `yaml:"inputs" json:"inputs"` // number of features
	// Start is the initial model. A single number sets all elements of the model. If it is empty, the model's default
	// is used.
	Start Numbers `yaml:"start" json:"start"`

	// RegressorVar is the variance of the regressors for the kind linear: one number, or one number per coordinate.
	RegressorVar Numbers `yaml:"regressor_var" json:"regressor_var"`
	// Regressors contains the regressor variances for the kind linear, one row per agent. If it is empty, RegressorVar
	// applies to all agents.
	Regressors [][]float64 `yaml:"regressors" json:"regressors"`
	// NoiseVar is the variance of the noise for the kind linear: one number for all agents, or one number per agent.
	NoiseVar Numbers `yaml:"noise_var" json:"noise_var"`
	// optimum of each agent, for the kind linear; empty means random optima
	Optima [][]float64 `yaml:"optima" json:"optima"`
	// mean of the optima for the kind linear; mean of class +1 for the kind toy
	Centre Numbers `yaml:"centre" json:"centre"`
	// Spread is the variance of the random optima for the kind linear, and the class imbalance (0 to 1) for the kind
	// toy.
	Spread float64 `yaml:"spread" json:"spread"`
	// Pool is the number of rows that all agents share, for the kind linear. Zero means that every local step draws new
	// samples.
	Pool int `yaml:"pool" json:"pool"`

	// Means contains the class means for the kinds logistic and bilinear, one row per agent. If it is empty, the means
	// of the experiment `saddle` apply.
	Means [][]float64 `yaml:"means" json:"means"`
	// Variance is the variance of the features, for the kinds logistic, bilinear, toy and blobs.
	Variance float64 `yaml:"variance" json:"variance"`

	// rows per agent for the kinds regression and toy; total number of rows for the kind blobs
	Rows      int     `yaml:"rows" json:"rows"`
	Deviation float64 `yaml:"deviation" json:"deviation"` // standard deviation of the features, for the kind regression
	Base      float64 `yaml:"base" json:"base"`           // base of the factors c_i = base^i, for the kind regression

	Eigenvalues Numbers `yaml:"eigenvalues" json:"eigenvalues"` // eigenvalues of the Hessian, for the kind quadratics
	// Centres contains the minimisers of the agents' risks for the kind quadratics, one row per agent. If it is empty,
	// the centres of the experiment `bound` apply.
	Centres [][]float64 `yaml:"centres" json:"centres"`

	// Quadratics is the path of a file with quadratic risks, local steps and weights of agents. Forms holds the decoded
	// file.
	Quadratics string         `yaml:"quadratics" json:"quadratics,omitempty"`
	Forms      *QuadraticFile `yaml:"-" json:"-"`

	// path of a plain or .gz file for the kind csv; its first line names the columns
	File string `yaml:"file" json:"file"`
	// HeldOut is the path of a CSV file with rows for evaluation, for the kind csv. If it is empty, models are
	// evaluated on the rows of all agents.
	HeldOut string `yaml:"held_out" json:"held_out"`
	// OwnHeldOut is the share of each agent's last rows that are held out to evaluate the agent's personal model.
	// OwnHeldOut applies only to the kinds csv and blobs.
	OwnHeldOut float64  `yaml:"own_held_out" json:"own_held_out"`
	Features   []string `yaml:"features" json:"features"` // names of the feature columns, for the kind csv
	Target     string   `yaml:"target" json:"target"`     // name of the target column, for the kind csv
	// Standardize scales each feature, and the target of a regression, to mean 0 and variance 1 over all agents.
	// Standardize applies to the kinds csv and blobs.
	Standardize bool `yaml:"standardize" json:"standardize"`
	// Model is the model for the kinds csv and blobs. The kind logistic reads only the ridge, and bilinear reads the
	// ridge and the number of hidden units (default 3).
	Model spec.Model `yaml:"model" json:"model"`

	// distribution of the rows to the agents, for the kinds csv and blobs
	Partition Partition `yaml:"partition" json:"partition"`
	// name of the column with the agent names, for the partition column
	Device string `yaml:"device" json:"device"`
	// parameter of the partition dirichlet; small values give uneven shares
	Alpha  float64 `yaml:"alpha" json:"alpha"`
	Shards int     `yaml:"shards" json:"shards"` // number of pieces per agent, for the partition shards
}

// DefaultSpec returns the problem of Lab #1 of the lecture, with homogeneous agents.
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

// architecture returns the model for a table with the given number of features.
func (s *Spec) architecture(inputs int) learner.Architecture {
	m := &s.Model
	return learner.Architecture{
		Kind: m.Kind, Inputs: inputs, Convolution: m.Convolution, HiddenUnits: m.HiddenUnits, Outputs: m.OutputCount(),
		Activation: m.Activation, Risk: m.EffectiveLossKind(), HasBias: m.HasBias, Ridge: m.Ridge,
		HuberDelta: m.HuberDelta,
	}
}

// bilinearUnits returns the number of hidden units of the bilinear network.
func (s *Spec) bilinearUnits() int {
	if len(s.Model.HiddenUnits) == 0 {
		return 3
	}
	return s.Model.HiddenUnits[0]
}

// Build returns the problem that s describes, for a seed and a number of agents. The number may be 0 if a table names
// the agents. The weights of the agents may have any scale; nil means equal weights. If byRows is set, each agent's
// weight is proportional to its number of rows. If a key is invalid, the error is a [*spec.FieldError].
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
