package theory

import (
	"gonum.org/v1/gonum/mat"
)

// moments is the mean a and the second moment P = E x xᵀ of the error x = w_i − w⁰.
type moments struct{ mean, second *mat.Dense }

func newMoments(d int) moments { return moments{mat.NewDense(d, 1, nil), mat.NewDense(d, d, nil)} }

// class is the agents that differ in their optimum only. A round is affine in Σb and Σbbᵀ, b_k = w⁰ − w_k⁰, so that it
// costs the same whatever their number.
type class struct {
	agent LMSAgent
	n     float64
	b, bb *mat.Dense // Σ b_k [d,1], Σ b_k b_kᵀ [d,d]

	step, gain float64
	contract   *mat.Dense // A = (I − μ_k R)^E_k
}

// lmsRound maps the moments before a round to those after it.
type lmsRound struct {
	classes  []*class
	agents   float64 // K
	own, two float64 // the factors of Σ_k E z_k z_kᵀ and Σ_{k≠l} E z_k z_lᵀ in E x xᵀ
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

// advance returns the moments after one round of ch5 (5.9)–(5.11).
//
// Given x, agent k's z_k = x + g_k(ψ_k − w_{i−1}) (g_k = 1, or K·p_k for a weighted mean) is independent of the others'
// and has the mean z̄_k = G_k x + c_k. The sampling takes (1/L)Σ z_k, so that
//
//	E x′x′ᵀ = own·Σ_k E z_k z_kᵀ + two·Σ_{k≠l} E z̄_k z̄_lᵀ
//
// which is ch5 Lemma 5.1 in matrix form, and without bounds.
func (r *lmsRound) advance(s moments) moments {
	d, _ := s.second.Dims()
	next, spread := newMoments(d), newMoments(d)
	slope, shift := mat.NewDense(d, d, nil), mat.NewDense(d, 1, nil) // Σ G_k, Σ c_k
	for _, c := range r.classes {
		g, gb := c.affine(d)
		slope.Add(slope, scaled(c.n, g))
		shift.Add(shift, gb)
		next.second.Add(next.second, scaled(r.own, c.squares(s)))
		// Σ z̄_k z̄_kᵀ over the class, which the sum over all pairs contains and k ≠ l does not.
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

// affine is G of z̄_k = G x + c_k and Σ c_k over the class.
func (c *class) affine(d int) (g, shift *mat.Dense) {
	move := c.move(d)
	g = identity(d)
	g.Add(g, move)
	return g, product(move, c.b)
}

// shifts is Σ c_k c_kᵀ over the class.
func (c *class) shifts(d int) *mat.Dense {
	move := c.move(d)
	return product(product(move, c.bb), move.T())
}

// move is g_k(A − I): z̄_k = x + g_k(A − I)(x + b_k).
func (c *class) move(d int) *mat.Dense {
	move := mat.DenseCopyOf(c.contract)
	move.Sub(move, identity(d))
	move.Scale(c.gain, move)
	return move
}

// squares is Σ E z_k z_kᵀ over the class. With y_k = ψ_k − w⁰ = e_k − b_k, e_k the agent's error about its own optimum
// after E_k steps, z_k = (1−g)x + g·y_k.
func (c *class) squares(s moments) *mat.Dense {
	start := product(s.mean, c.b.T()) // Σ E x b_kᵀ
	x := scaled(c.n, s.second)
	e := mat.DenseCopyOf(x)
	e.Add(e, start)
	e.Add(e, start.T())
	e.Add(e, c.bb)
	c.descend(e)
	cross := product(c.contract, sum(start, c.bb)) // Σ E e_k b_kᵀ
	y := sum(e, c.bb)
	y.Sub(y, cross)
	y.Sub(y, cross.T())
	if c.gain == 1 {
		return y
	}
	yx := product(c.contract, sum(x, start.T())) // Σ E y_k xᵀ
	yx.Sub(yx, start.T())
	z := scaled((1-c.gain)*(1-c.gain), x)
	z.Add(z, scaled(c.gain*(1-c.gain), sum(yx, yx.T())))
	z.Add(z, scaled(c.gain*c.gain, y))
	return z
}

// descend takes Σ E e eᵀ through the E_k local steps, in place. With h Gaussian, E[hhᵀ S hhᵀ] = 2RSR + R tr(RS), so a
// step on B samples maps
//
//	S → (I − μ_k R) S (I − μ_k R) + (μ_k²/B)(RSR + R tr(RS) + σ_v² R)
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

// outerMeans is n·G P Gᵀ + G a cᵀ + c aᵀ Gᵀ: E z̄ z̄ᵀ summed over n agents, all but the square of the shifts.
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
