package theory

import (
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"
)

// Averaged describes federated averaging on a Bilinear risk. In each round, L of K agents are drawn without
// replacement. Each takes E local steps of size μKp_k/E, each on B new samples. A step happens with probability δ and
// is scaled by 1/δ. Noise v with variance σ_v² per coordinate is added to the gradient (paper on second-order
// guarantees, eqs. (5) and (7)–(9)).
type Averaged struct {
	Bilinear
	Participants int     // number L of participants per round
	LocalSteps   int     // number E of local steps
	BatchSize    int     // number B of samples per mini-batch
	StepSize     float64 // step size μ
	ResponseProb float64 // probability δ that a local step happens
	NoiseVar     float64 // variance σ_v² of the added gradient noise
}

// Noise returns the covariance of a round's gradient noise s_i at w (eq. (35) of the paper on second-order guarantees):
//
//	(K/L)Σ (p_k²/E) R_k + (K/L)·(K−L)/(K−1)·Σ t_k t_kᵀ,  t_k = p_k∇J_k − ∇J/K
//
// where R_k = (1/δ)(C_k/B + ∇J_k∇J_kᵀ + σ_v²I) − ∇J_k∇J_kᵀ and C_k is the covariance of one sample's gradient.
func (a Averaged) Noise(w []float64) *mat.SymDense {
	agents := len(a.Means)
	noise := mat.NewSymDense(len(w), nil)
	all := mat.NewVecDense(len(w), a.Gradient(w))
	share, absent := float64(agents)/float64(a.Participants), 0.0
	if agents > 1 {
		absent = float64(agents-a.Participants) / float64(agents-1)
	}
	for k := range a.Means {
		p := 1 / float64(agents)
		if a.Weights != nil {
			p = a.Weights[k]
		}
		mean, covariance := a.sample(k, w)
		scale := share * p * p / float64(a.LocalSteps)
		noise.AddSym(noise, scaledSym(scale/a.ResponseProb/float64(a.BatchSize), covariance))
		noise.SymRankOne(noise, scale*(1/a.ResponseProb-1), mean)
		for i := range w {
			noise.SetSym(i, i, noise.At(i, i)+scale/a.ResponseProb*a.NoiseVar)
		}
		var t mat.VecDense
		t.ScaleVec(p, mean)
		t.AddScaledVec(&t, -1/float64(agents), all)
		noise.SymRankOne(noise, share*absent, &t)
	}
	return noise
}

// sample returns the mean and the covariance of agent k's gradient −σ(−uᵀx)Uᵀx + ρw for one sample x = γh ~ N(m_k,
// σ²I), where U is the Jacobian of u = W₂ᵀw₁. The part of x that is orthogonal to u is independent of the margin, so
// one quadrature along u suffices.
func (a Averaged) sample(k int, w []float64) (mean *mat.VecDense, covariance *mat.SymDense) {
	w2, w1 := a.split(w)
	u := fold(w2, w1)
	inputs, norm := u.Len(), mat.Norm(u, 2)
	along := mat.NewVecDense(inputs, nil)
	if along.SetVec(0, 1); norm > 0 {
		along.ScaleVec(1/norm, u)
	}
	centre := mat.NewVecDense(inputs, a.Means[k])
	first, second := mat.NewVecDense(inputs, nil), mat.NewSymDense(inputs, nil)
	margin, deviation := mat.Dot(u, centre), math.Sqrt(a.Variance)
	for i, z := range hermiteAt {
		s := 1 / (1 + math.Exp(margin+deviation*norm*z))
		var x mat.VecDense
		x.AddScaledVec(centre, deviation*z, along)
		first.AddScaledVec(first, hermiteWeight[i]*s, &x)
		second.SymRankOne(second, hermiteWeight[i]*s*s, &x)
		for j := range inputs {
			second.SetSym(j, j, second.At(j, j)+hermiteWeight[i]*s*s*a.Variance)
		}
		second.SymRankOne(second, -hermiteWeight[i]*s*s*a.Variance, along)
	}
	jacobian := a.jacobian(w2, w1)
	mean = mat.NewVecDense(len(w), nil)
	mean.MulVec(jacobian.T(), first)
	covariance = symmetric(product(product(jacobian.T(), second), jacobian))
	covariance.SymRankOne(covariance, -1, mean)
	mean.AddScaledVec(mat.NewVecDense(len(w), nil), -1, mean)
	mean.AddScaledVec(mean, a.Ridge, mat.NewVecDense(len(w), w))
	return mean, covariance
}

// Steady returns the limits of the excess risk E J(w_i) − J* and of the squared gradient norm E‖∇J(w_i)‖², to first
// order in the step size μ. Around a minimum with Hessian H and gradient noise R, the covariance P of w_i solves HP +
// PH = μR. Therefore the limits are ½ tr(HP) = (μ/4) tr(R) and (μ/2) tr(HR). The trace of R excludes directions along a
// valley of minima, where H is zero.
func (a Averaged) Steady() (excess, gradient float64) {
	_, star := a.Minimum()
	h, r := a.Hessian(star), a.Noise(star)
	var eig mat.EigenSym
	if !eig.Factorize(h, true) {
		panic("theory: cannot compute the eigenvalues of the Hessian")
	}
	var vectors mat.Dense
	eig.VectorsTo(&vectors)
	values := eig.Values(nil)
	for j, v := range values {
		if v > 1e-6*values[len(values)-1] {
			excess += a.StepSize / 4 * mat.Inner(vectors.ColView(j), r, vectors.ColView(j))
		}
	}
	return excess, a.StepSize / 2 * mat.Trace(product(h, r))
}

// Descent returns the first round in which exact gradient descent from w reaches a risk J ≤ level, or −1 if this takes
// more than most rounds. Exact gradient descent is the limit of vanishing noise. E steps of size μ/E in a round give w
// − μ(∇J(w) + ∇J(w′))/2 with w′ = w − μ(1 − 1/E)∇J(w), up to O(μ³).
func (a Averaged) Descent(w []float64, level float64, most int) int {
	at, ahead := append([]float64(nil), w...), make([]float64, len(w))
	for i := range most + 1 {
		if a.Risk(at) <= level {
			return i
		}
		first := a.Gradient(at)
		for j, g := range first {
			ahead[j] = at[j] - a.StepSize*(1-1/float64(a.LocalSteps))*g
		}
		for j, g := range a.Gradient(ahead) {
			at[j] -= a.StepSize * (first[j] + g) / 2
		}
	}
	return -1
}

// Escape returns the first round in which training from the strict saddle w = 0 reaches a risk J ≤ level, or −1 if this
// takes more than most rounds. At the saddle, all sample gradients are zero, and only the added noise v moves the
// model. Along the Hidden unstable directions with eigenvalue −λ, the model w_i is a sum of noise that grows by the
// factor 1 + μλ per round. Its mean squared size is Hidden·μ²σ_s²/((1+μλ)² − 1)·(1+μλ)²ⁱ, and its logarithm has the
// mean of the logarithm of a χ² variable. From this size at i = 0, Escape continues with Descent.
func (a Averaged) Escape(level float64, most int) int {
	zero := make([]float64, a.Hidden*(len(a.Means[0])+1))
	var eig mat.EigenSym
	if !eig.Factorize(a.Hessian(zero), true) {
		panic("theory: cannot compute the eigenvalues of the Hessian")
	}
	lambda := -eig.Values(nil)[0]
	if lambda <= 0 || a.NoiseVar == 0 {
		return -1
	}
	var vectors mat.Dense
	eig.VectorsTo(&vectors)
	direction := vectors.ColView(0)
	growth := 1 + a.StepSize*lambda
	perCoordinate := mat.Inner(direction, a.Noise(zero), direction)
	size := a.StepSize * math.Sqrt(2*perCoordinate/(growth*growth-1)) * math.Exp(mathext.Digamma(float64(a.Hidden)/2)/2)
	for j := range zero {
		zero[j] = size * direction.AtVec(j)
	}
	return a.Descent(zero, level, most)
}
