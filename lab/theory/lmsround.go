package theory

import (
	"gonum.org/v1/gonum/mat"
)

// moments holds the mean E x and the second moment E xxᵀ of the model's error x = w_i − w⁰.
type moments struct{ mean, second *mat.Dense }

func newMoments(d int) moments { return moments{mat.NewDense(d, 1, nil), mat.NewDense(d, d, nil)} }

// class is a set of agents that differ only in their optimum w_k⁰. The result of a round depends only on the sums of
// b_k = w⁰ − w_k⁰ and b_k b_kᵀ over the class, so the cost does not grow with the number of agents.
type class struct {
	agent LMSAgent
	n     float64
	b, bb *mat.Dense // sums of b_k = w⁰ − w_k⁰ [d, 1] and of b_k b_kᵀ [d, d] over the class

	step, gain float64
	contract   *mat.Dense // matrix A = (I − μ_k R)^E_k, the effect of all local steps
}

// lmsRound computes the moments of the error after a round from the moments before the round.
type lmsRound struct {
	classes  []*class
	agents   float64 // number K of agents
	own, two float64 // factors of Σ_k E z_k z_kᵀ (own) and Σ_{k≠l} E z_k z_lᵀ (two) in the second moment E xxᵀ
}

func (m LMS) round() *lmsRound {
	origin := mat.NewDense(len(m.Agents[0].Optimum), 1, m.Optimum())
	k, l := float64(len(m.Agents)), float64(m.Participants)
	r := &lmsRound{agents: k}
	if m.Replacement {
		r.own, r.two = (1/k+(l-1)/(k*k))/l, (l-1)/(l*k*k)
	} else {
		r.own, r.two = 1/(k*l), (l-1)/(l*k*max(k-1, 1))
	}
	for _, a := range m.Agents {
		c := r.classOf(a, m)
		var b, bb mat.Dense
		b.Sub(origin, mat.NewDense(len(a.Optimum), 1, a.Optimum))
		bb.Mul(&b, b.T())
		c.n++
		c.b.Add(c.b, &b)
		c.bb.Add(c.bb, &bb)
	}
	return r
}

func (r *lmsRound) classOf(a LMSAgent, m LMS) *class {
	for _, c := range r.classes {
		o := c.agent
		if o.LocalSteps == a.LocalSteps && o.BatchSize == a.BatchSize && o.NoiseVar == a.NoiseVar &&
			o.weight() == a.weight() && mat.Equal(o.Covariance, a.Covariance) {
			return c
		}
	}
	d := len(a.Optimum)
	zero := newMoments(d)
	c := &class{agent: a, b: zero.mean, bb: zero.second, step: m.localStep(a), gain: m.gain(a),
		contract: mat.NewDense(d, d, nil)}
	one := identity(d)
	one.Sub(one, scaledSym(c.step, a.Covariance))
	c.contract.Pow(one, a.LocalSteps)
	r.classes = append(r.classes, c)
	return c
}

// advance returns the moments after one round (Vlaski and Sayed, chapter 5, eqs. (5.9)–(5.11)). For a given error x,
// the result z_k = x + g_k(ψ_k − w_{i−1}) of agent k has the mean z̄_k = G_k x + c_k. The factor g_k is 1, or K·p_k for
// a weighted mean, and ψ_k is the local model after all local steps. Results of different agents are independent. The
// server averages the results of the L participants, so that
//
//	E x′x′ᵀ = own·Σ_k E z_k z_kᵀ + two·Σ_{k≠l} E z̄_k z̄_lᵀ
//
// This is the matrix form of Lemma 5.1 in chapter 5, as an equality.
func (r *lmsRound) advance(s moments) moments {
	d, _ := s.second.Dims()
	next, spread := newMoments(d), newMoments(d)
	// slope is Σ G_k and shift is Σ c_k over all agents.
	slope, shift := mat.NewDense(d, d, nil), mat.NewDense(d, 1, nil)
	for _, c := range r.classes {
		g, gb := c.affine(d)
		slope.Add(slope, scaled(c.n, g))
		shift.Add(shift, gb)
		next.second.Add(next.second, scaled(r.own, c.squares(s)))
		// bars is Σ z̄_k z̄_kᵀ over the class. Subtract it from the sum over all pairs to get the sum over k ≠ l.
		bars := outerMeans(s, g, gb, c.n)
		bars.Add(bars, c.shifts(d))
		spread.second.Add(spread.second, bars)
	}
	all := outerMeans(s, slope, shift, 1)
	all.Add(all, product(shift, shift.T()))
	all.Sub(all, spread.second)
	next.second.Add(next.second, scaled(r.two, all))
	next.mean.Add(product(slope, s.mean), shift)
	next.mean.Scale(1/r.agents, next.mean)
	return next
}

// affine returns the matrix G in the mean result z̄_k = G x + c_k of agent k, and the sum of all c_k of the class.
func (c *class) affine(d int) (g, shift *mat.Dense) {
	move := c.move(d)
	g = identity(d)
	g.Add(g, move)
	return g, product(move, c.b)
}

// shifts returns the sum of c_k c_kᵀ over the class, where c_k is the constant part of agent k's mean result.
func (c *class) shifts(d int) *mat.Dense {
	move := c.move(d)
	return product(product(move, c.bb), move.T())
}

// move returns the matrix g_k(A − I). With this matrix, the mean result of agent k is z̄_k = x + g_k(A − I)(x + b_k).
func (c *class) move(d int) *mat.Dense {
	move := mat.DenseCopyOf(c.contract)
	move.Sub(move, identity(d))
	move.Scale(c.gain, move)
	return move
}

// squares returns the sum of the second moments E z_k z_kᵀ over the class. It uses z_k = (1−g)x + g·y_k with y_k = ψ_k
// − w⁰ = e_k − b_k, where e_k is the error relative to the agent's own optimum after E_k local steps.
func (c *class) squares(s moments) *mat.Dense {
	start := product(s.mean, c.b.T()) // sum of E x b_kᵀ over the class
	x := scaled(c.n, s.second)
	e := mat.DenseCopyOf(x)
	e.Add(e, start)
	e.Add(e, start.T())
	e.Add(e, c.bb)
	c.descend(e)
	cross := product(c.contract, sum(start, c.bb)) // sum of E e_k b_kᵀ over the class
	y := sum(e, c.bb)
	y.Sub(y, cross)
	y.Sub(y, cross.T())
	if c.gain == 1 {
		return y
	}
	yx := product(c.contract, sum(x, start.T())) // sum of E y_k xᵀ over the class
	yx.Sub(yx, start.T())
	z := scaled((1-c.gain)*(1-c.gain), x)
	z.Add(z, scaled(c.gain*(1-c.gain), sum(yx, yx.T())))
	z.Add(z, scaled(c.gain*c.gain, y))
	return z
}

// descend replaces the sum S of E e eᵀ over the class by its value after E_k local steps. One step on B samples gives
//
//	S → (I − μ_k R) S (I − μ_k R) + (μ_k²/B)(RSR + R tr(RS) + σ_v² R)
//
// because E[hhᵀ S hhᵀ] = 2RSR + R tr(RS) for Gaussian features h.
func (c *class) descend(s *mat.Dense) {
	r := c.agent.Covariance
	d := r.SymmetricDim()
	keep := identity(d)
	keep.Sub(keep, scaledSym(c.step, r))
	noise := c.step * c.step * c.agent.inverseBatch()
	for range c.agent.LocalSteps {
		rs := product(r, s)
		extra := product(rs, r)
		extra.Add(extra, scaled(mat.Trace(rs)+c.n*c.agent.NoiseVar, r))
		s.Copy(product(product(keep, s), keep))
		s.Add(s, scaled(noise, extra))
	}
}

// outerMeans returns the sum of E z̄ z̄ᵀ over n agents without the terms c_k c_kᵀ: n·G P Gᵀ + G a cᵀ + c aᵀ Gᵀ. Here a
// and P are the moments s, and c is the sum of the shifts c_k.
func outerMeans(s moments, g, c mat.Matrix, n float64) *mat.Dense {
	out := scaled(n, product(product(g, s.second), g.T()))
	mixed := product(product(g, s.mean), c.T())
	out.Add(out, mixed)
	out.Add(out, mixed.T())
	return out
}

func identity(d int) *mat.Dense {
	one := mat.NewDense(d, d, nil)
	for i := range d {
		one.Set(i, i, 1)
	}
	return one
}

func product(a, b mat.Matrix) *mat.Dense {
	var p mat.Dense
	p.Mul(a, b)
	return &p
}

func sum(a, b mat.Matrix) *mat.Dense {
	var s mat.Dense
	s.Add(a, b)
	return &s
}

func scaled(c float64, a mat.Matrix) *mat.Dense {
	var s mat.Dense
	s.Scale(c, a)
	return &s
}
