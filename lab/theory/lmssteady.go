package theory

import (
	"errors"
	"fmt"
	"math/cmplx"

	"gonum.org/v1/gonum/mat"
)

// ErrUnstable is returned if the step size is too large, so that the mean-square error grows without bound.
var ErrUnstable = errors.New("the step size exceeds the mean-square stability limit")

// Steady is the steady state of least-mean-square federated averaging.
type Steady struct {
	Optimum []float64     // optimum w⁰ of the aggregate risk
	Mean    []float64     // limit of the mean model E w_i
	Second  *mat.SymDense // limit of E (w_i − w⁰)(w_i − w⁰)ᵀ
	MSD     float64       // mean-square deviation lim E‖w⁰ − w_i‖²; trace of Second (chapter 5, problem 5.3)
	// Rate is the factor by which a round finally reduces the influence of the initial model. It is the spectral radius
	// of the recursion and below 1.
	Rate float64
}

// SteadyState returns the steady state, which is exact in the step size μ. The steady state is the fixed point of the
// affine recursion of the mean and the second moment. SteadyState returns [ErrUnstable] if there is no fixed point, or
// an error of Validate. It takes O(d²) rounds and O(d⁶) operations for d parameters, and is meant for d up to about 30.
func (m LMS) SteadyState() (Steady, error) {
	if err := m.Validate(); err != nil {
		return Steady{}, err
	}
	r := m.round()
	d := len(m.Agents[0].Optimum)
	n := d + d*(d+1)/2
	constant := pack(r.advance(newMoments(d)))
	system := mat.NewDense(n, n, nil) // matrix I − T of the linear recursion T
	for j := range n {
		unit := make([]float64, n)
		unit[j] = 1
		column := pack(r.advance(unpack(unit, d)))
		for i := range n {
			v := constant[i] - column[i]
			if i == j {
				v++
			}
			system.Set(i, j, v)
		}
	}
	// X = T X + I has a positive definite solution X exactly if the spectral radius of T is below 1 (Lyapunov). The
	// solution therefore shows whether the step size is stable.
	probe := pack(moments{mat.NewDense(d, 1, nil), identity(d)})
	rhs := mat.NewDense(n, 2, nil)
	rhs.SetCol(0, constant)
	rhs.SetCol(1, probe)
	var x mat.Dense
	if err := x.Solve(system, rhs); err != nil {
		return Steady{}, fmt.Errorf("%w: %w", ErrUnstable, err)
	}
	var chol mat.Cholesky
	if !chol.Factorize(symmetric(unpack(mat.Col(nil, 1, &x), d).second)) {
		return Steady{}, ErrUnstable
	}
	fixed := unpack(mat.Col(nil, 0, &x), d)
	st := Steady{Optimum: m.Optimum(), Second: symmetric(fixed.second), MSD: mat.Trace(fixed.second)}
	for j, w := range st.Optimum {
		st.Mean = append(st.Mean, w+fixed.mean.At(j, 0))
	}
	st.Rate = rate(system)
	return st, nil
}

// rate returns the spectral radius of the linear recursion T. system is the matrix I − T.
func rate(system *mat.Dense) float64 {
	var eig mat.Eigen
	if !eig.Factorize(system, mat.EigenNone) {
		panic("theory: cannot compute the eigenvalues of the recursion")
	}
	most := 0.0
	for _, v := range eig.Values(nil) {
		most = max(most, cmplx.Abs(1-v))
	}
	return most
}

// Curve returns the expected squared error E‖w⁰ − w_i‖² after each round i from 0 to rounds, for the initial model
// start.
func (m LMS) Curve(start []float64, rounds int) ([]float64, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	d := len(m.Agents[0].Optimum)
	s := moments{mat.NewDense(d, 1, nil), nil}
	s.mean.Sub(mat.NewDense(d, 1, start), mat.NewDense(d, 1, m.Optimum()))
	s.second = product(s.mean, s.mean.T())
	curve := []float64{mat.Trace(s.second)}
	for r := m.round(); len(curve) <= rounds; {
		s = r.advance(s)
		curve = append(curve, mat.Trace(s.second))
	}
	return curve, nil
}

// FirstOrder returns the mean-square deviation lim E‖w⁰ − w_i‖² to first order in the step size μ. About the limit w*
// of [LMS.SmallStepLimit], the error is a stationary process with HΠ + ΠH = μQ, so that trace Π = (μ/2) tr(H⁻¹Q). Here
// H = (1/K)Σ θ_k R_k, and Q is the covariance of one round's gradient at w*, by Lemma 5.1 in chapter 5 of Vlaski and
// Sayed with E_k·B_k samples per agent:
//
//	Q = (1/KL) Σ θ_k² C_k/(E_k B_k) + (1/KL)·(K−L)/(K−1)·Σ g_k g_kᵀ,  g_k = θ_k R_k t_k,  t_k = w* − w_k⁰,
//	C_k = σ_v,k² R_k + R_k t_k t_kᵀ R_k + R_k (t_kᵀ R_k t_k)
//
// C_k is the covariance of one sample's gradient. The bias d_i of local steps (eq. (5.20) in the same chapter) is O(μ)
// and changes the mean-square deviation by O(μ²). Without the normalisation of eq. (5.26), w* ≠ w⁰ and ‖w* − w⁰‖² is
// the leading term.
func (m LMS) FirstOrder() (float64, error) {
	if err := m.Validate(); err != nil {
		return 0, err
	}
	d := len(m.Agents[0].Optimum)
	k, l := float64(len(m.Agents)), float64(m.Participants)
	within, between := 1/(k*l), (k-l)/(max(k-1, 1)*k*l)
	if m.Replacement { // An agent that is drawn twice contributes the same update twice.
		within, between = (1+(l-1)/k)/(k*l), 1/(k*l)
	}
	limit := mat.NewDense(d, 1, m.SmallStepLimit())
	h, q := mat.NewDense(d, d, nil), mat.NewDense(d, d, nil)
	for _, a := range m.Agents {
		pull := m.pull(a)
		h.Add(h, scaled(pull/k, a.Covariance))
		var t mat.Dense
		t.Sub(limit, mat.NewDense(d, 1, a.Optimum))
		g := product(a.Covariance, &t)
		gg := product(g, g.T())
		c := scaled(a.NoiseVar+product(t.T(), g).At(0, 0), a.Covariance)
		c.Add(c, gg)
		q.Add(q, scaled(within*pull*pull*a.inverseBatch()/float64(a.LocalSteps), c))
		q.Add(q, scaled(between*pull*pull, gg))
	}
	var hq mat.Dense
	if err := hq.Solve(h, q); err != nil {
		return 0, fmt.Errorf("the Hessian of the aggregate is singular: %w", err)
	}
	limit.Sub(limit, mat.NewDense(d, 1, m.Optimum()))
	bias := mat.Norm(limit, 2)
	return bias*bias + m.StepSize/2*mat.Trace(&hq), nil
}

// pack returns the mean followed by the upper triangle of the second moment.
func pack(s moments) []float64 {
	d, _ := s.second.Dims()
	v := mat.Col(nil, 0, s.mean)
	for i := range d {
		for j := i; j < d; j++ {
			v = append(v, (s.second.At(i, j)+s.second.At(j, i))/2)
		}
	}
	return v
}

func unpack(v []float64, d int) moments {
	s := newMoments(d)
	at := d
	for i := range d {
		s.mean.Set(i, 0, v[i])
		for j := i; j < d; j++ {
			s.second.Set(i, j, v[at])
			s.second.Set(j, i, v[at])
			at++
		}
	}
	return s
}

func symmetric(a *mat.Dense) *mat.SymDense {
	d, _ := a.Dims()
	s := mat.NewSymDense(d, nil)
	for i := range d {
		for j := i; j < d; j++ {
			s.SetSym(i, j, a.At(i, j))
		}
	}
	return s
}
