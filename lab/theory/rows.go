package theory

import "gonum.org/v1/gonum/mat"

// Rows describes federated averaging of a linear model ŷ = wᵀx with the loss (ŷ − y)² on stored rows, with exact
// recursions for the mean and the second moment of w. In each round, all agents take τ local steps of size η, each on B
// rows that are drawn uniformly with replacement (Renard's notes, Algorithm 1 and section 3.1).
type Rows struct {
	X        [][][]float64 // features, indexed by agent, row and column
	Y        [][]float64
	StepSize float64 // step size η
	Steps    int     // number τ of local steps per round
	Batch    int     // number B of rows per mini-batch; 0 means all rows (exact gradient)
}

// errorMoments holds the mean m and the second moment S of an error e = w − w° relative to a fixed point w°.
type errorMoments struct {
	mean   *mat.VecDense
	second *mat.SymDense
}

// agentRows holds the rows of one agent with residuals r = y − xᵀw° relative to a fixed point w°. The gradient of the
// loss for one row is 2x(xᵀe − r) with the error e = w − w°.
type agentRows struct {
	x       []*mat.VecDense
	r       []float64
	hessian *mat.SymDense // matrix H: mean of 2xxᵀ over the rows
	pull    *mat.VecDense // vector c: mean of 2r·x over the rows
}

func (r Rows) agents(about []float64) []agentRows {
	agents := make([]agentRows, len(r.X))
	for k, rows := range r.X {
		a := agentRows{hessian: mat.NewSymDense(len(about), nil), pull: mat.NewVecDense(len(about), nil)}
		for i, row := range rows {
			x := mat.NewVecDense(len(row), row)
			miss := r.Y[k][i] - mat.Dot(x, mat.NewVecDense(len(about), about))
			a.x, a.r = append(a.x, x), append(a.r, miss)
			a.hessian.SymRankOne(a.hessian, 2/float64(len(rows)), x)
			a.pull.AddScaledVec(a.pull, 2*miss/float64(len(rows)), x)
		}
		agents[k] = a
	}
	return agents
}

// step returns the moments of the error after one local step e − ηĝ. The mean of the gradient ĝ is He − c. The second
// moment of a single row's gradient is the mean over the rows of 4xxᵀ(xᵀSx − 2r·xᵀm + r²).
func (r Rows) step(a agentRows, at errorMoments) errorMoments {
	d := at.mean.Len()
	gradient := mat.NewVecDense(d, nil)
	gradient.MulVec(a.hessian, at.mean)
	gradient.SubVec(gradient, a.pull)
	along := mat.NewDense(d, d, nil) // E ḡeᵀ = HS − cmᵀ, where ḡ = He − c is the mean gradient
	along.Mul(a.hessian, at.second)
	along.RankOne(along, -1, a.pull, at.mean)
	// square is the second moment of the mean gradient ḡ: E ḡḡᵀ = (E ḡeᵀ)H − (E ḡ)cᵀ.
	square := mat.NewDense(d, d, nil)
	square.Mul(along, a.hessian)
	square.RankOne(square, -1, gradient, a.pull)
	if r.Batch > 0 {
		one := mat.NewSymDense(d, nil)
		for i, x := range a.x {
			weight := mat.Inner(x, at.second, x) - 2*a.r[i]*mat.Dot(x, at.mean) + a.r[i]*a.r[i]
			one.SymRankOne(one, 4*weight/float64(len(a.x)), x)
		}
		square.Scale(1-1/float64(r.Batch), square)
		square.Add(square, scaledSym(1/float64(r.Batch), one))
	}
	next := errorMoments{mean: mat.NewVecDense(d, nil), second: mat.NewSymDense(d, nil)}
	next.mean.AddScaledVec(at.mean, -r.StepSize, gradient)
	for i := range d {
		for j := i; j < d; j++ {
			next.second.SetSym(i, j, at.second.At(i,
				j)-r.StepSize*(along.At(i, j)+along.At(j, i))+r.StepSize*r.StepSize*square.At(i, j))
		}
	}
	return next
}

// Curve returns the mean model E w_i and the excess risk E J(w_i) − J(w°) after i = 0 … rounds rounds. The initial
// model is 0, and minimizer is the minimiser w° of the mean risk J. Different agents draw rows independently, so the
// second moment across two agents follows from their means.
func (r Rows) Curve(minimizer []float64, rounds int) (means [][]float64, excess []float64) {
	d, n := len(minimizer), float64(len(r.X))
	agents := r.agents(minimizer)
	total, start := mat.NewSymDense(d, nil), mat.NewVecDense(d, nil)
	start.AddScaledVec(start, -1, mat.NewVecDense(d, minimizer))
	at := errorMoments{start, mat.NewSymDense(d, nil)}
	at.second.SymRankOne(at.second, 1, start)
	for _, a := range agents {
		total.AddSym(total, scaledSym(1/n, a.hessian))
	}
	for i := range rounds + 1 {
		mean := make([]float64, d)
		for j := range mean {
			mean[j] = minimizer[j] + at.mean.AtVec(j)
		}
		means, excess = append(means, mean), append(excess, mat.Trace(product(total, at.second))/2)
		if i < rounds {
			at = r.round(agents, at)
		}
	}
	return means, excess
}

// round returns the moments of the error after one round, in which the server averages the agents' results z_k. The
// second moment is (1/K²)(Σ_k E z_k z_kᵀ + Σ_{k≠l} E z̄_k z̄_lᵀ), where z̄_k is the mean of z_k for a given previous
// model. The second sum is computed over all pairs and then reduced by the pairs with k = l.
func (r Rows) round(agents []agentRows, at errorMoments) errorMoments {
	d, n := at.mean.Len(), float64(len(agents))
	all := affine{mat.NewDense(d, d, nil), mat.NewVecDense(d, nil)}
	next := errorMoments{mat.NewVecDense(d, nil), mat.NewSymDense(d, nil)}
	for _, a := range agents {
		local, own := at, affine{identity(d), mat.NewVecDense(d, nil)}
		for range r.Steps {
			local = r.step(a, local)
			own = own.afterStep(r.StepSize, a)
		}
		all.a.Add(all.a, own.a)
		all.b.AddVec(all.b, own.b)
		next.mean.AddScaledVec(next.mean, 1/n, local.mean)
		next.second.AddSym(next.second, scaledSym(1/n/n, local.second))
		next.second.AddSym(next.second, scaledSym(-1/n/n, own.second(at)))
	}
	next.second.AddSym(next.second, scaledSym(1/n/n, all.second(at)))
	return next
}

// affine is the affine map e → Ae + b of an error e.
type affine struct {
	a *mat.Dense
	b *mat.VecDense
}

// afterStep returns the map m followed by the mean effect of a local step, e → (I − ηH)e + ηc.
func (m affine) afterStep(eta float64, a agentRows) affine {
	next := affine{mat.NewDense(m.b.Len(), m.b.Len(), nil), mat.NewVecDense(m.b.Len(), nil)}
	next.a.Mul(a.hessian, m.a)
	next.a.Scale(-eta, next.a)
	next.a.Add(next.a, m.a)
	next.b.MulVec(a.hessian, m.b)
	next.b.ScaleVec(-eta, next.b)
	next.b.AddVec(next.b, m.b)
	next.b.AddScaledVec(next.b, eta, a.pull)
	return next
}

// second returns the second moment of the mapped error, E (Ae + b)(Ae + b)ᵀ = ASAᵀ + Am bᵀ + b(Am)ᵀ + bbᵀ.
func (m affine) second(at errorMoments) *mat.SymDense {
	var moved mat.VecDense
	moved.MulVec(m.a, at.mean)
	s := symmetric(product(product(m.a, at.second), m.a.T()))
	s.RankTwo(s, 1, &moved, m.b)
	s.SymRankOne(s, 1, m.b)
	return s
}
