package theory

import "math"

// Lab is lecture Lab #1 (82)–(87): γ = hᵀw_k⁰ + v with isotropic regressors h ~ N(0, σ_h² I_M), v ~ N(0, σ_v²),
// w_k⁰ ~ N(𝟙, σ_w² I_M), all agents alike but for their optimum. Expectations are over the draw of the problem too, and
// w⁰ is the mean of the w_k⁰ drawn, not 𝟙.
type Lab struct {
	Inputs       int     // M
	RegressorVar float64 // σ_h²
	NoiseVar     float64 // σ_v²
	Spread       float64 // σ_w²
	StepSize     float64 // μ
	Agents       int     // K
	Participants int     // L, drawn without replacement
	LocalSteps   int     // E, each of size μ/E
	BatchSize    int     // B; 0 = the exact gradient
}

// between is the expectation of ‖w_k⁰ − w⁰‖², averaged over the agents: Mσ_w²(K−1)/K.
func (l Lab) between() float64 {
	return float64(l.Inputs) * l.Spread * float64(l.Agents-1) / float64(l.Agents)
}

func (l Lab) inverseBatch() float64 { return LMSAgent{BatchSize: l.BatchSize}.inverseBatch() }

// withoutReplacementFactor is (K−L)/(K−1), 0 for K = 1: the factor of drawing without replacement.
func withoutReplacementFactor(k, l int) float64 {
	if k == 1 {
		return 0
	}
	return float64(k-l) / float64(k-1)
}

// round is the recursion E‖x_i‖² = gain·E‖x_{i−1}‖² + noise, x = w⁰ − w: for alike isotropic agents the trace of the
// second moment is closed in itself. One local step of size m = μ/E on B samples has E‖e‖² → ρ E‖e‖² + m²σ_v²σ_h²M/B
// with ρ = 1 − 2mσ_h² + m²σ_h⁴(1 + (1+M)/B), for the error e about the agent's own optimum, and E e → (1 − mσ_h²) E e.
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

// MSD is lim E‖w⁰ − w_i‖², exact in μ; +Inf above the stability limit. For K = L = E = B = 1 it is the textbook's
// μσ_v²M/(2 − μσ_h²(M+2)).
func (l Lab) MSD() float64 {
	gain, noise := l.round()
	if gain >= 1 {
		return math.Inf(1)
	}
	return noise / (1 - gain)
}

// Gain is the factor by which a round shrinks what is left of the start in E‖w⁰ − w_i‖².
func (l Lab) Gain() float64 {
	gain, _ := l.round()
	return gain
}

// Curve is E‖w⁰ − w_i‖² for i = 0 … rounds from a start with that distance, E‖w⁰ − w_0‖² (M(1 + σ_w²/K) for w_0 = 0).
func (l Lab) Curve(start float64, rounds int) []float64 {
	gain, noise := l.round()
	curve := []float64{start}
	for i := range rounds {
		curve = append(curve, gain*curve[i]+noise)
	}
	return curve
}

// FirstOrder is MSD to first order in μ:
//
//	(μ/2σ_h²)·[ (1/LEB)(σ_h²Mσ_v² + (1+M)σ_h⁴ s) + (1/L)(K−L)/(K−1)·σ_h⁴ s ],  s = mean of ‖w_k⁰ − w⁰‖²
//
// For homogeneous agents it is μMσ_v²/(2LEB): linear gain in L, E and B.
func (l Lab) FirstOrder() float64 {
	r, dim, s, part := l.RegressorVar, float64(l.Inputs), l.between(), float64(l.Participants)
	within := (r*dim*l.NoiseVar + (1+dim)*r*r*s) * l.inverseBatch() / (part * float64(l.LocalSteps))
	sampling := withoutReplacementFactor(l.Agents, l.Participants) * r * r * s / part
	return l.StepSize / (2 * r) * (within + sampling)
}

// GradientNoise is σ_fed² of lecture (77), ch5 (5.40): the part of the bound on the gradient noise that does not vanish
// at w⁰, with the constants of this problem: β² = σ_h⁴(1+M)/B, σ² = σ_h²Mσ_v²/B, δ = σ_h². For L = K, E = 1 it is
// σ_cent² of (30), for K = L = 1 plain σ_1².
func (l Lab) GradientNoise() float64 {
	r, dim, s, part := l.RegressorVar, float64(l.Inputs), l.between(), float64(l.Participants)
	beta2, sigma2 := r*r*(1+dim)*l.inverseBatch(), r*dim*l.NoiseVar*l.inverseBatch()
	return (2*beta2*s+sigma2)/(float64(l.LocalSteps)*part) + withoutReplacementFactor(l.Agents,
		l.Participants)*4*r*r*s/part
}

// Bound is μσ_fed²/ν, ν = σ_h²: the limit that lecture (40), (42) and (52)–(53) print for E = 1. It has the order of
// (76); the bound (75) and ch5 (5.57) is 4μσ_fed²/ν + O(μ²). Where agents are homogeneous it is about twice the true
// error.
func (l Lab) Bound() float64 { return l.StepSize * l.GradientNoise() / l.RegressorVar }
