package spec

import "math"

// StepSize contains the settings under the key "step_size" in a task or an experiment. The step size is either the
// constant μ or, with IsDiminishing, decays (FedDec paper, Theorem 1):
//
//	η_t = 2/(μ_sc(γ+t)), γ = max{8 L_s/μ_sc − 1, H}
//
// Here t counts local steps across rounds, and H is the number of local steps between two server rounds.
type StepSize struct {
	Constant float64 `yaml:"constant" json:"constant"` // constant step size μ; unused if IsDiminishing is set
	// NormalizesStepSize divides the step size of agent k by the number E_k of its local steps (ch5, equation (5.26)).
	// Without this division, the iterates converge to the limit in ch5, problem 5.1. FedDec does not divide the step
	// size.
	NormalizesStepSize bool `yaml:"normalize" json:"normalize"`
	IsDiminishing      bool `yaml:"diminishing" json:"diminishing"`
	// StrongConvexity is the strong convexity constant μ_sc of the risk. In an experiment, 0 means that the value of
	// the experiment's problem is used.
	StrongConvexity float64 `yaml:"strong_convexity" json:"strong_convexity"`
	// Smoothness is the smoothness constant L_s of the risk. In an experiment, 0 means that the value of the
	// experiment's problem is used.
	Smoothness float64 `yaml:"smoothness" json:"smoothness"`
	// DecayOffset is the offset γ of the diminishing step size; 0 means that the formula for γ is used.
	DecayOffset float64 `yaml:"gamma" json:"gamma"`
}

// Check validates the step size and reports errors under key.
func (s StepSize) Check(c *ProblemList, key string) {
	if !s.IsDiminishing {
		c.Require(isPositiveFinite(s.Constant), key+".constant", "invalid value %v: must be a positive number",
			s.Constant)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"strong_convexity", s.StrongConvexity}, {"smoothness", s.Smoothness}, {"gamma", s.DecayOffset}} {
		c.Require(f.value == 0 || isPositiveFinite(f.value), key+"."+f.name, "invalid value %v: must be a positive "+
			"number, or 0",
			f.value)
		c.Require(f.value == 0 || s.IsDiminishing, key+"."+f.name,
			"this key is set to %v, but %s.diminishing is not set: set diminishing to true or remove this key",
			f.value, key)
	}
}

// GradientNoise contains the settings under the key "gradient_noise" in a task or an experiment: the noise v that is
// added to each gradient (2nd-order paper, equation (8)). The zero value adds no noise.
type GradientNoise struct {
	Law      NoiseLaw `yaml:"law" json:"law"`
	Variance float64  `yaml:"variance" json:"variance"`
}

// Check validates the noise settings and reports errors under key.
func (n GradientNoise) Check(c *ProblemList, key string) {
	c.AddError(key+".law", n.Law.Validate())
	switch n.Law {
	case NoiseNone:
		c.Require(n.Variance == 0, key+".variance", "this key is set to %v, but no noise law is set: set %s.law to "+
			"gaussian or laplace",
			n.Variance,
			key)
	case NoiseGaussian, NoiseLaplace:
		c.Require(isPositiveFinite(n.Variance), key+".variance", "invalid value %v: must be a positive number with "+
			"the law %s",
			n.Variance,
			n.Law)
	}
}

// CheckLocalStepProbability validates the probability δ_k with which an agent k takes a local step, and reports errors
// under key.
func CheckLocalStepProbability(c *ProblemList, key string, p float64) {
	c.Require(p > 0 && p <= 1, key, "invalid value %v: must be more than 0 and at most 1", p)
}

func isPositiveFinite(v float64) bool { return v > 0 && !math.IsInf(v, 1) }
