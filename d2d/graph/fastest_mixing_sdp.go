package graph

import (
	"slices"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"
)

// fastestMixingSDP is the semidefinite program for the fastest-mixing weights,
//
//	minimise s  subject to  Z₁ = sI − M ⪰ 0,  Z₂ = sI + M ⪰ 0,  M = I − 𝟙𝟙ᵀ/n − Σ w_l a_l a_lᵀ,
//
// with a_l = e_i − e_j for edge l = ij, and its dual,
//
//	maximise (I − 𝟙𝟙ᵀ/n)•(X₁ − X₂)  subject to  X₁, X₂ ⪰ 0,  tr X₁ + tr X₂ = 1,  a_lᵀX₁a_l = a_lᵀX₂a_l for all l.
//
// It is solved by a primal-dual interior-point method: the HKM direction with a predictor and a corrector (Helmberg,
// Rendl, Vanderbei, Wolkowicz 1996). Both problems start feasible and remain feasible, so X•Z bounds the distance of s
// from the optimum. A step costs O(m³ + n³) for m edges and n nodes.
type fastestMixingSDP struct {
	graph        *Graph
	variables    []float64 // edge weights w, followed by s
	inequalities [2]matrixInequality
}

// matrixInequality is one of the two constraints of the program, that Z = sI + sign·M is positive semidefinite.
type matrixInequality struct {
	sign             float64
	x, z, zInverse   *mat.SymDense // matrices X, Z and Z⁻¹ of the dual and the primal problem
	dx, dz           *mat.SymDense // search directions for X and Z
	predictorProduct *mat.SymDense // dX dZ Z⁻¹ of the predictor
}

// newFastestMixingSDP returns the program at a feasible starting point: edge weights whose mixing matrix has a norm
// below s, and a multiple of the identity matrix as X.
func newFastestMixingSDP(g *Graph, weights []float64, s float64) *fastestMixingSDP {
	p := &fastestMixingSDP{graph: g, variables: append(slices.Clone(weights), s)}
	m := centeredMatrix((&MixingMatrix{Graph: g, EdgeWeights: weights}).DenseMatrix())
	for k, sign := range []float64{-1, 1} {
		z := mat.NewSymDense(g.nodeCount, nil)
		z.ScaleSym(sign, m)
		p.inequalities[k] = matrixInequality{sign: sign, z: addScaledIdentity(z, s),
			x:        addScaledIdentity(mat.NewSymDense(g.nodeCount, nil), 0.5/float64(g.nodeCount)),
			zInverse: mat.NewSymDense(g.nodeCount, nil), dx: mat.NewSymDense(g.nodeCount, nil),
			predictorProduct: mat.NewSymDense(g.nodeCount, nil)}
	}
	return p
}

func (p *fastestMixingSDP) edgeWeights() []float64 { return p.variables[:len(p.graph.edges)] }

// eigenvalueBound returns the variable s, which is an upper bound of |λ₂|, the second largest absolute eigenvalue of
// the mixing matrix.
func (p *fastestMixingSDP) eigenvalueBound() float64 { return p.variables[len(p.graph.edges)] }

// dualityGap returns X•Z, the difference between the objective values of the primal and the dual problem.
func (p *fastestMixingSDP) dualityGap() float64 {
	sum := 0.0
	for k := range p.inequalities {
		sum += traceOfProduct(p.inequalities[k].x, p.inequalities[k].z)
	}
	return sum
}

// interiorPointStep performs one step of the interior-point method. It returns false if the linear systems are
// singular, which happens very near the optimum.
func (p *fastestMixingSDP) interiorPointStep() bool {
	var z mat.Cholesky
	for k := range p.inequalities {
		b := &p.inequalities[k]
		if !z.Factorize(b.z) || z.InverseTo(b.zInverse) != nil {
			return false
		}
		b.predictorProduct.Zero()
	}
	schur, ok := lapack64.Potrf(p.schurComplement().RawSymmetric())
	if !ok {
		return false
	}
	// The predictor aims directly at the optimum. The length of its step determines how strongly the corrector moves
	// back towards the central path.
	p.searchDirection(schur, 0)
	along, aside := p.maxStepLengths()
	before, after := p.dualityGap(), 0.0
	for k := range p.inequalities {
		b := &p.inequalities[k]
		after += traceOfProduct(b.x, b.z) + along*traceOfProduct(b.x, b.dz) + aside*traceOfProduct(b.dx,
			b.z) + along*aside*traceOfProduct(b.dx, b.dz)
		b.predictorProduct = symmetrizedProduct(b.dx, b.dz, b.zInverse)
	}
	shrunk := after / before
	dy := p.searchDirection(schur, shrunk*shrunk*after/float64(2*p.graph.nodeCount))
	if along, aside = p.maxStepLengths(); max(along, aside) < 1e-3 {
		return false
	}
	for j, d := range dy {
		p.variables[j] += along * d
	}
	for k := range p.inequalities {
		b := &p.inequalities[k]
		addScaledMatrix(b.z, along, b.dz)
		addScaledMatrix(b.x, aside, b.dx)
	}
	return true
}

// searchDirection computes the direction of one step of the interior-point method. It stores the changes dX and dZ in
// the two inequalities, and returns the changes dy of the variables, such that
//
//	dZ = −Σ dy_j A_j,  X + dX = centre·Z⁻¹ − second − X dZ Z⁻¹,  A_j•(X + dX) = b_j,
//
// with symmetrised products, where second is predictorProduct and centre·I is the intended value of the product XZ. The
// matrices A_j are defined by Z = C − Σ y_j A_j: A_l is sign·a_l a_lᵀ for the weight of edge l, and A_s is −I for the
// variable s. The constant b_j is −1 for s and 0 for the weights. schur is the Cholesky factor of the system for dy.
func (p *fastestMixingSDP) searchDirection(schur blas64.Triangular, centre float64) (dy []float64) {
	m := len(p.graph.edges)
	dy = make([]float64, m+1)
	dy[m] = -1
	for k := range p.inequalities {
		b := &p.inequalities[k]
		b.dx.ScaleSym(centre, b.zInverse)
		addScaledMatrix(b.dx, -1, b.predictorProduct)
		for l, e := range p.graph.edges {
			dy[l] -= b.sign * edgeQuadraticForm(b.dx, e)
		}
		dy[m] += mat.Trace(b.dx)
	}
	lapack64.Potrs(schur, blas64.General{Rows: m + 1, Cols: 1, Stride: 1, Data: dy})
	for k := range p.inequalities {
		b := &p.inequalities[k]
		b.dz = laplacianMatrix(p.graph, dy[:m])
		b.dz.ScaleSym(-b.sign, b.dz)
		addScaledIdentity(b.dz, dy[m])
		addScaledMatrix(b.dx, -1, b.x)
		addScaledMatrix(b.dx, -1, symmetrizedProduct(b.x, b.dz, b.zInverse))
	}
	return dy
}

// schurComplement returns the matrix of the linear system for dy. The element in row i and column j is A_i•(X A_j Z⁻¹),
// summed over both matrix inequalities.
func (p *fastestMixingSDP) schurComplement() *mat.SymDense {
	m, n := len(p.graph.edges), p.graph.nodeCount
	schur := mat.NewSymDense(m+1, nil)
	xs, inverses := make([]float64, n), make([]float64, n) // products a_lᵀX and a_lᵀZ⁻¹ for the edge l
	for k := range p.inequalities {
		b := &p.inequalities[k]
		product := symmetrizedProduct(b.x, b.zInverse)
		for l, e := range p.graph.edges {
			for i := range n {
				xs[i] = b.x.At(e.I, i) - b.x.At(e.J, i)
				inverses[i] = b.zInverse.At(e.I, i) - b.zInverse.At(e.J, i)
			}
			row := schur.RawSymmetric().Data[l*(m+1) : (l+1)*(m+1)]
			for j, f := range p.graph.edges[l:] {
				row[l+j] += (xs[f.I] - xs[f.J]) * (inverses[f.I] - inverses[f.J])
			}
			row[m] -= b.sign * edgeQuadraticForm(product, e)
		}
		schur.SetSym(m, m, schur.At(m, m)+mat.Trace(product))
	}
	return schur
}

// maxStepLengths returns the step length of Z along dZ and the step length of X along dX. Each step length is the
// largest power of 0.9 that keeps the matrix positive definite, reduced by 5 %.
func (p *fastestMixingSDP) maxStepLengths() (along, aside float64) {
	along, aside = 1, 1
	var sum mat.SymDense
	shorten := func(most *float64, s, d *mat.SymDense) {
		for ; *most > 1e-6; *most *= 0.9 {
			sum.ScaleSym(*most, d)
			sum.AddSym(&sum, s)
			if _, ok := lapack64.Potrf(sum.RawSymmetric()); ok {
				return
			}
		}
	}
	for k := range p.inequalities {
		b := &p.inequalities[k]
		shorten(&along, b.z, b.dz)
		shorten(&aside, b.x, b.dx)
	}
	return 0.95 * along, 0.95 * aside
}

// edgeQuadraticForm returns aᵀSa for the vector a = e_i − e_j of an edge between the nodes i and j.
func edgeQuadraticForm(s *mat.SymDense, e Edge) float64 {
	return s.At(e.I, e.I) + s.At(e.J, e.J) - 2*s.At(e.I, e.J)
}

func addScaledMatrix(dst *mat.SymDense, c float64, s *mat.SymDense) {
	for i := range dst.SymmetricDim() {
		for j := i; j < dst.SymmetricDim(); j++ {
			dst.SetSym(i, j, dst.At(i, j)+c*s.At(i, j))
		}
	}
}

// traceOfProduct returns A•B, the trace of the matrix product AB.
func traceOfProduct(a, b *mat.SymDense) float64 {
	sum := 0.0
	for i := range a.SymmetricDim() {
		sum += a.At(i, i) * b.At(i, i)
		for j := range i {
			sum += 2 * a.At(i, j) * b.At(i, j)
		}
	}
	return sum
}

// symmetrizedProduct returns the symmetric part of a matrix product.
func symmetrizedProduct(first *mat.SymDense, factors ...*mat.SymDense) *mat.SymDense {
	product := mat.DenseCopyOf(first)
	for _, f := range factors {
		var next mat.Dense
		next.Mul(product, mat.DenseCopyOf(f))
		product = &next
	}
	n := first.SymmetricDim()
	s := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			s.SetSym(i, j, (product.At(i, j)+product.At(j, i))/2)
		}
	}
	return s
}
