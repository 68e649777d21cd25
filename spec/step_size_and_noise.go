package spec

import "math"

// StepSize is the key step_size of a task and of an experiment: the constant μ or, with IsDiminishing,
//
//	η_t = 2/(μ_sc(γ+t)), γ = max{8 L_s/μ_sc − 1, H}
//
// (feddec Thm 1), where t counts local steps across rounds and H is the number of local steps between server rounds.
type StepSize struct {
	Constant float64 `yaml:"constant" json:"constant"` // constant step size μ; unused with IsDiminishing
	// NormalizesStepSize divides the step size by E_k (ch5 (5.26)). Without it, the limit is that of ch5 problem 5.1.
	// FedDec does not normalise.
	NormalizesStepSize bool `yaml:"normalize" json:"normalize"`
	IsDiminishing      bool `yaml:"diminishing" json:"diminishing"`
	// StrongConvexity is μ_sc; 0 in an experiment means the value of its problem.
	StrongConvexity float64 `yaml:"strong_convexity" json:"strong_convexity"`
	// smoothness constant L_s; in an experiment, 0 means the value of the problem
	Smoothness float64 `yaml:"smoothness" json:"smoothness"`
	// offset γ of the decreasing step size; 0 means the value of the formula
	DecayOffset float64 `yaml:"gamma" json:"gamma"`
}

// Check validates the step size and reports errors under its key.
func (s StepSize) Check(c *ProblemList, key string) {
	if !s.IsDiminishing {
		c.Require(isPositiveFinite(s.Constant), key+".constant", "is %v; want a positive number", s.Constant)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"strong_convexity", s.StrongConvexity}, {"smoothness", s.Smoothness}, {"gamma", s.DecayOffset}} {
		c.Require(f.value == 0 || isPositiveFinite(f.value), key+"."+f.name, "is %v; want a positive number, or 0",
			f.value)
		c.Require(f.value == 0 || s.IsDiminishing, key+"."+f.name,
			"is %v but %s.diminishing is not set: set it to true or remove this key", f.value, key)
	}
}

// GradientNoise is the key gradient_noise of a task and of an experiment: the perturbation v that is added to each
// gradient (2nd-order (8)). Its zero value adds none.
type GradientNoise struct {
	Law      NoiseLaw `yaml:"law" json:"law"`
	Variance float64  `yaml:"variance" json:"variance"`
}

// Check validates the noise and reports errors under its key.
func (n GradientNoise) Check(c *ProblemList, key string) {
	c.AddError(key+".law", n.Law.Validate())
	switch n.Law {
	case NoiseNone:
		c.Require(n.Variance == 0, key+".variance", "is %v but no noise law is set: set %s.law to gaussian or laplace",
			n.Variance,
			key)
	case NoiseGaussian, NoiseLaplace:
		c.Require(isPositiveFinite(n.Variance), key+".variance", "is %v; want a positive number with the law %s",
			n.Variance,
			n.Law)
	}
}

// CheckLocalStepProbability validates a response probability δ_k and reports errors under key.
func CheckLocalStepProbability(c *ProblemList, key string, p float64) {
	c.Require(p > 0 && p <= 1, key, "is %v; want more than 0 and at most 1", p)
}

func isPositiveFinite(v float64) bool { return v > 0 && !math.IsInf(v, 1) }
