package graph

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// laplacianMatrix returns Σ w_ij (e_i − e_j)(e_i − e_j)ᵀ.
func laplacianMatrix(g *Graph, weights []float64) *mat.SymDense {
	l := mat.NewSymDense(g.nodeCount, nil)
	for k, e := range g.edges {
		w := weights[k]
		l.SetSym(e.I, e.J, -w)
		l.SetSym(e.I, e.I, l.At(e.I, e.I)+w)
		l.SetSym(e.J, e.J, l.At(e.J, e.J)+w)
	}
	return l
}

// LaplacianSpectrum returns the eigenvalues of the graph's Laplacian (degrees minus adjacency), largest first. The last
// one is 0. The second to last is positive if the graph is connected.
func LaplacianSpectrum(g *Graph) []float64 {
	return symmetricEigenvalues(laplacianMatrix(g, constantWeights(g, 1)))
}

// DenseMatrix returns W = I − Σ w_ij (e_i − e_j)(e_i − e_j)ᵀ.
func (m *MixingMatrix) DenseMatrix() *mat.SymDense {
	w := laplacianMatrix(m.Graph, m.EdgeWeights)
	w.ScaleSym(-1, w)
	return addScaledIdentity(w, 1)
}

// Spectrum returns the eigenvalues of W, largest first. The vector 𝟙 has the eigenvalue 1.
func (m *MixingMatrix) Spectrum() []float64 { return symmetricEigenvalues(m.DenseMatrix()) }

// SecondEigenvalue returns |λ̂₂| = |λ₂(E[WWᵀ])| (feddec Theorem 1), where each link is up independently with
// probability linkUp in each step. For linkUp = 1, W is fixed and the result is |λ₂(W)|². The result is 1 for a graph
// that is not connected. It is exact, except for a fixed W with more than 1,000 nodes: there it is a lower bound,
// accurate to nine digits unless the graph hardly mixes.
func (m *MixingMatrix) SecondEigenvalue(linkUp float64) float64 {
	if m.Graph.nodeCount < 2 {
		return 0
	}
	if linkUp == 1 && m.Graph.nodeCount > maxDenseNodes {
		// Eigenvalues of I − W.
		low, high := extremeEigenvalues(m.Graph.nodeCount, laplacianProduct(m.Graph, m.EdgeWeights))
		second := max(math.Abs(1-low), math.Abs(1-high))
		return second * second
	}
	if linkUp == 1 {
		second := secondLargestEigenvalue(m.DenseMatrix())
		return second * second
	}
	if m.usesActiveMetropolis {
		return secondLargestEigenvalue(expectedMetropolisSquare(m.Graph, linkUp))
	}
	return secondLargestEigenvalue(m.expectedSquaredMatrix(linkUp))
}

// expectedSquaredMatrix returns E[W²] if the edges l are up as independent b_l ∈ {0, 1} and W = I − L, L = Σ b_l w_l
// a_l a_lᵀ. As E[b_l b_k] = p² but E[b_l²] = p, and a_lᵀa_l = 2, E[L²] = (pL₁)² + (p − p²) Σ 2 w_l² a_l a_lᵀ, where L₁
// is L with all links up.
func (m *MixingMatrix) expectedSquaredMatrix(p float64) *mat.SymDense {
	squares := make([]float64, len(m.EdgeWeights))
	for k, w := range m.EdgeWeights {
		squares[k] = w * w
	}
	mean := laplacianMatrix(m.Graph, m.EdgeWeights)
	mean.ScaleSym(-p, mean)
	mean = addScaledIdentity(mean, 1)
	square := mat.NewSymDense(m.Graph.nodeCount, nil)
	square.SymOuterK(1, mean)
	noise := laplacianMatrix(m.Graph, squares)
	noise.ScaleSym(2*p*(1-p), noise)
	square.AddSym(square, noise)
	return square
}

// MixingAlphaOfEigenvalue returns α = |λ̂₂|/(1 − |λ̂₂|) (feddec Theorem 1). It returns +Inf for eigenvalues of at least
// 1, i.e. if the agents do not mix.
func MixingAlphaOfEigenvalue(secondEigenvalue float64) float64 {
	if secondEigenvalue >= 1 {
		return math.Inf(1)
	}
	return secondEigenvalue / (1 - secondEigenvalue)
}

func addScaledIdentity(s *mat.SymDense, by float64) *mat.SymDense {
	for i := range s.SymmetricDim() {
		s.SetSym(i, i, s.At(i, i)+by)
	}
	return s
}

// secondLargestEigenvalue returns the largest absolute eigenvalue of a matrix with S𝟙 = 𝟙 on the vectors orthogonal to
// 𝟙.
func secondLargestEigenvalue(s *mat.SymDense) float64 {
	lambda := symmetricEigenvalues(centeredMatrix(s))
	return max(math.Abs(lambda[0]), math.Abs(lambda[len(lambda)-1]))
}

// centeredMatrix returns S − 𝟙𝟙ᵀ/n.
func centeredMatrix(s *mat.SymDense) *mat.SymDense {
	n := s.SymmetricDim()
	c := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			c.SetSym(i, j, s.At(i, j)-1/float64(n))
		}
	}
	return c
}

// symmetricEigenvalues returns the eigenvalues of a symmetric matrix, largest first. gonum's QL iteration fails only on
// matrices that are not finite, and non-finite weights are rejected as input.
func symmetricEigenvalues(s mat.Symmetric) []float64 {
	if s.SymmetricDim() == 0 {
		return nil
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(s, false) {
		panic("graph: eigenvalue computation failed for a finite symmetric matrix")
	}
	values := eigen.Values(nil)
	slices.Reverse(values)
	return values
}
