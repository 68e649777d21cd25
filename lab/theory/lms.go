package theory

import (
	"errors"
	"fmt"

	"gonum.org/v1/gonum/mat"
)

// LMS describes federated averaging of linear models with the expected squared risks J_k(w) = ½E(γ − hᵀw)². The samples
// of agent k are γ = hᵀw_k⁰ + v with h ~ N(0, R_k) and v ~ N(0, σ_v,k²) (Vlaski and Sayed, chapter 5, eqs.
// (5.66)–(5.68) and problem 5.3). Every local step uses a new mini-batch.
type LMS struct {
	StepSize     float64 // step size μ
	Participants int     // number L of participants per round
	Replacement  bool    // true to draw participants with replacement and count repeated draws
	Unnormalized bool    // true to omit the factor 1/E_k of chapter 5, eq. (5.26), from the agents' step sizes
	WeightedMean bool    // true to apply the weight K·p_k in the server's average, not in the step size
	Agents       []LMSAgent
}

// LMSAgent holds the data distribution and the settings of one agent.
type LMSAgent struct {
	Covariance mat.Symmetric // covariance R_k of the features; positive definite
	Optimum    []float64     // optimal parameters w_k⁰ of this agent
	NoiseVar   float64       // variance σ_v,k² of the target noise
	LocalSteps int           // number E_k of local steps
	BatchSize  int           // number B_k of samples per mini-batch; 0 means the exact gradient
	Weight     float64       // weight K·p_k; 0 means 1, the weight of equal agents
}

// Validate returns an error that joins one error for each invalid field.
func (m LMS) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	k := len(m.Agents)
	if k == 0 {
		return errors.New("no agents")
	}
	if !(m.StepSize > 0) {
		bad("step size is %v, but must be positive", m.StepSize)
	}
	if m.Participants < 1 || m.Participants > k && !m.Replacement {
		bad("invalid number of participants: %d of %d agents", m.Participants, k)
	}
	d := len(m.Agents[0].Optimum)
	for i, a := range m.Agents {
		switch {
		case len(a.Optimum) != d || a.Covariance == nil || a.Covariance.SymmetricDim() != d:
			bad("agent %d: the optimum or the covariance does not have dimension %d", i, d)
		case a.LocalSteps < 1 || a.BatchSize < 0 || a.NoiseVar < 0 || a.Weight < 0:
			bad("agent %d: invalid settings: %d local steps, batch size %d, noise variance %v, weight %v", i,
				a.LocalSteps, a.BatchSize,
				a.NoiseVar, a.Weight)
		}
	}
	return errors.Join(errs...)
}

// weight returns the weight K·p_k of the agent, which is 1 if all agents have equal weight.
func (a LMSAgent) weight() float64 {
	if a.Weight == 0 {
		return 1
	}
	return a.Weight
}

// inverseBatch returns 1/B_k for the batch size B_k, or 0 for the exact gradient.
func (a LMSAgent) inverseBatch() float64 {
	if a.BatchSize == 0 {
		return 0
	}
	return 1 / float64(a.BatchSize)
}

// localStep returns the step size of agent k, μ·K·p_k/E_k (paper on second-order guarantees, eq. (5)). It omits the
// factors that the settings do not apply to step sizes.
func (m LMS) localStep(a LMSAgent) float64 {
	mu := m.StepSize
	if !m.WeightedMean {
		mu *= a.weight()
	}
	if !m.Unnormalized {
		mu /= float64(a.LocalSteps)
	}
	return mu
}

// gain returns the weight of an agent's parameter change in the server's average, apart from the factor 1/L.
func (m LMS) gain(a LMSAgent) float64 {
	if m.WeightedMean {
		return a.weight()
	}
	return 1
}

// pull returns the influence θ_k of agent k. To first order in the step size μ, a round moves the model by
// −μ(1/L)Σθ_k∇J_k. θ_k is K·p_k if the step sizes are normalised by eq. (5.26) in chapter 5 of Vlaski and Sayed, and
// K·p_k·E_k otherwise.
func (m LMS) pull(a LMSAgent) float64 {
	return m.gain(a) * m.localStep(a) * float64(a.LocalSteps) / m.StepSize
}

// Optimum returns the minimiser w⁰ of the aggregate risk Σ p_k J_k (paper on second-order guarantees, eq. (2)), which
// is the root of Σ p_k R_k (w − w_k⁰).
func (m LMS) Optimum() []float64 {
	return m.minimizer(func(a LMSAgent) float64 { return a.weight() })
}

// SmallStepLimit returns the limit of the mean model as the step size μ approaches 0, which is the minimiser of Σ θ_k
// J_k. If the step sizes are normalised by eq. (5.26) in chapter 5 of Vlaski and Sayed, this is the optimum w⁰.
// Otherwise it is the minimiser of Σ p_k E_k J_k (problem 5.1 and eq. (5.25) in the same chapter).
func (m LMS) SmallStepLimit() []float64 { return m.minimizer(m.pull) }

// minimizer returns the minimiser of the weighted sum of the agents' risks J_k.
func (m LMS) minimizer(weight func(LMSAgent) float64) []float64 {
	d := len(m.Agents[0].Optimum)
	h, rhs := mat.NewSymDense(d, nil), mat.NewVecDense(d, nil)
	for _, a := range m.Agents {
		c := weight(a)
		h.AddSym(h, scaledSym(c, a.Covariance))
		var r mat.VecDense
		r.MulVec(a.Covariance, mat.NewVecDense(d, a.Optimum))
		rhs.AddScaledVec(rhs, c, &r)
	}
	w := mat.NewVecDense(d, nil)
	if err := w.SolveVec(h, rhs); err != nil {
		panic(fmt.Sprintf("theory: the sum of the covariances is singular: %v", err))
	}
	return w.RawVector().Data
}

func scaledSym(c float64, s mat.Symmetric) *mat.SymDense {
	d := mat.NewSymDense(s.SymmetricDim(), nil)
	d.ScaleSym(c, s)
	return d
}
