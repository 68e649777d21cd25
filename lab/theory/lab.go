package theory

import "math"

// Lab is the linear regression problem of lecture Lab #1, eqs. (82)–(87). Agent k has targets γ = hᵀw_k⁰ + v with
// features h ~ N(0, σ_h² I), noise v ~ N(0, σ_v²) and its own optimum w_k⁰ ~ N(𝟙, σ_w² I). Expectations also average
// over the random optima. The common optimum w⁰ is the mean of all w_k⁰.
type Lab struct {
	Inputs       int     // number M of features
	RegressorVar float64 // variance σ_h² of each feature
	NoiseVar     float64 // variance σ_v² of the target noise
	Spread       float64 // variance σ_w² of the agents' optima
	StepSize     float64 // step size μ
	Agents       int     // number K of agents
	Participants int     // number L of participants per round, drawn without replacement
	LocalSteps   int     // number E of local steps, each of size μ/E
	BatchSize    int     // number B of samples per mini-batch; 0 means the exact gradient
}

// between returns the expected squared distance ‖w_k⁰ − w⁰‖² of an agent's optimum from the common optimum, averaged
// over all agents: Mσ_w²(K−1)/K.
func (l Lab) between() float64 {
	return float64(l.Inputs) * l.Spread * float64(l.Agents-1) / float64(l.Agents)
}

func (l Lab) inverseBatch() float64 { return LMSAgent{BatchSize: l.BatchSize}.inverseBatch() }

// withoutReplacementFactor returns the factor (K−L)/(K−1) by which drawing L of K agents without replacement reduces
// the variance. withoutReplacementFactor returns 0 for K = 1.
func withoutReplacementFactor(k, l int) float64 {
	if k == 1 {
		return 0
	}
	return float64(k-l) / float64(k-1)
}

// round returns the coefficients of the recursion E‖x_i‖² = gain·E‖x_{i−1}‖² + noise for the error x_i = w⁰ − w_i after
// round i.
//
// A local step of size m = μ/E on B samples changes the error e relative to the agent's own optimum: E‖e‖² becomes
// ρE‖e‖² + m²σ_v²σ_h²M/B with ρ = 1 − 2mσ_h² + m²σ_h⁴(1 + (1+M)/B), and E e becomes (1 − mσ_h²)E e.
func (l Lab) round() (gain, noise float64) {
	m, r, dim := l.StepSize/float64(l.LocalSteps), l.RegressorVar, float64(l.Inputs)
	batch, part := l.inverseBatch(), float64(l.Participants)
	rho := 1 - 2*m*r + m*m*r*r*(1+(1+dim)*batch)
	keep := math.Pow(rho, float64(l.LocalSteps))
	added := 0.0
	for range l.LocalSteps {
		added = rho*added + m*m*l.NoiseVar*r*dim*batch
	}
	mean, between := math.Pow(1-m*r, float64(l.LocalSteps)), l.between()
	gain = (keep + (part-1)*mean*mean) / part
	noise = (keep*between + added - 2*mean*between + between) / part
	if l.Agents > 1 {
		noise -= (part - 1) / part * (1 - mean) * (1 - mean) * between / float64(l.Agents-1)
	}
	return gain, noise
}

// MSD returns the steady-state mean-square deviation lim E‖w⁰ − w_i‖² for any step size μ. MSD returns +Inf above the
// stability limit. For K = L = E = B = 1 this is the known result μσ_v²M/(2 − μσ_h²(M+2)).
func (l Lab) MSD() float64 {
	gain, noise := l.round()
	if gain >= 1 {
		return math.Inf(1)
	}
	return noise / (1 - gain)
}

// Gain returns the factor by which one round multiplies the influence of the initial model on the error E‖w⁰ − w_i‖².
func (l Lab) Gain() float64 {
	gain, _ := l.round()
	return gain
}

// Curve returns the expected squared error E‖w⁰ − w_i‖² after i = 0 … rounds rounds. start is the squared error of the
// initial model: M(1 + σ_w²/K) for w_0 = 0.
func (l Lab) Curve(start float64, rounds int) []float64 {
	gain, noise := l.round()
	curve := []float64{start}
	for i := range rounds {
		curve = append(curve, gain*curve[i]+noise)
	}
	return curve
}

// FirstOrder returns the mean-square deviation [Lab.MSD] to first order in the step size μ:
//
//	(μ/2σ_h²)·[ (1/LEB)(σ_h²Mσ_v² + (1+M)σ_h⁴ s) + (1/L)(K−L)/(K−1)·σ_h⁴ s ],  s = mean of ‖w_k⁰ − w⁰‖²
//
// If all agents have the same optimum, this is μMσ_v²/(2LEB), inversely proportional to L, E and B.
func (l Lab) FirstOrder() float64 {
	r, dim, s, part := l.RegressorVar, float64(l.Inputs), l.between(), float64(l.Participants)
	within := (r*dim*l.NoiseVar + (1+dim)*r*r*s) * l.inverseBatch() / (part * float64(l.LocalSteps))
	sampling := withoutReplacementFactor(l.Agents, l.Participants) * r * r * s / part
	return l.StepSize / (2 * r) * (within + sampling)
}

// GradientNoise returns the constant σ_fed² of eq. (77) in the lecture and eq. (5.40) in chapter 5 of Vlaski and Sayed:
// the part of the gradient noise bound that remains at the optimum w⁰. For this problem the other constants are β² =
// σ_h⁴(1+M)/B, σ² = σ_h²Mσ_v²/B and δ = σ_h². For L = K and E = 1 it equals σ_cent² of eq. (30).
func (l Lab) GradientNoise() float64 {
	r, dim, s, part := l.RegressorVar, float64(l.Inputs), l.between(), float64(l.Participants)
	beta2, sigma2 := r*r*(1+dim)*l.inverseBatch(), r*dim*l.NoiseVar*l.inverseBatch()
	return (2*beta2*s+sigma2)/(float64(l.LocalSteps)*part) + withoutReplacementFactor(l.Agents,
		l.Participants)*4*r*r*s/part
}

// Bound returns the published bound μσ_fed²/ν with ν = σ_h² for the mean-square deviation with E = 1 (lecture eqs.
// (40), (42) and (52)–(53)). The bound in eq. (75) of the lecture and eq. (5.57) in chapter 5 of Vlaski and Sayed is
// four times as large. For agents with equal optima, Bound is about twice the true error.
func (l Lab) Bound() float64 { return l.StepSize * l.GradientNoise() / l.RegressorVar }
