package graph

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// laplacianMatrix returns the weighted Laplacian Σ w_ij (e_i − e_j)(e_i − e_j)ᵀ, summed over the edges ij with weights
// w_ij, where e_i is the i-th unit vector.
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

// LaplacianSpectrum returns the eigenvalues of the graph's Laplacian (the degree matrix minus the adjacency matrix),
// largest first. The last eigenvalue is 0. The second to last eigenvalue is positive if the graph is connected.
func LaplacianSpectrum(g *Graph) []float64 {
	return symmetricEigenvalues(laplacianMatrix(g, constantWeights(g, 1)))
}

// DenseMatrix returns the mixing matrix W = I − Σ w_ij (e_i − e_j)(e_i − e_j)ᵀ, summed over the edges ij with weights
// w_ij, where e_i is the i-th unit vector.
func (m *MixingMatrix) DenseMatrix() *mat.SymDense {
	w := laplacianMatrix(m.Graph, m.EdgeWeights)
	w.ScaleSym(-1, w)
	return addScaledIdentity(w, 1)
}

// Spectrum returns the eigenvalues of the mixing matrix W, largest first. The all-ones vector is an eigenvector with
// the eigenvalue 1.
func (m *MixingMatrix) Spectrum() []float64 { return symmetricEigenvalues(m.DenseMatrix()) }

// SecondEigenvalue returns |λ̂₂| = |λ₂(E[WWᵀ])|, the second largest absolute eigenvalue of the expected squared mixing
// matrix (FedDec paper, Theorem 1). In each step, each link is up independently with the probability linkUp. For linkUp
// = 1, W is fixed and the result is |λ₂(W)|². The result is 1 for a graph that is not connected. The result is exact,
// except for a fixed W with more than 1,000 nodes. In that case it is a lower bound, accurate to nine digits unless the
// graph hardly mixes.
func (m *MixingMatrix) SecondEigenvalue(linkUp float64) float64 {
	if m.Graph.nodeCount < 2 {
		return 0
	}
	if linkUp == 1 && m.Graph.nodeCount > maxDenseNodes {
		// Compute the extreme eigenvalues of I − W.
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

// expectedSquaredMatrix returns the expectation E[W²] of the squared mixing matrix W if each edge is up independently
// with probability p. With b_l ∈ {0, 1} for the state of edge l, W = I − L and L = Σ b_l w_l a_l a_lᵀ, where a_l = e_i
// − e_j for the nodes i and j of the edge. As E[b_l b_k] = p² but E[b_l²] = p, and a_lᵀa_l = 2, the result contains
// E[L²] = (pL₁)² + (p − p²) Σ 2 w_l² a_l a_lᵀ, where L₁ is L with all links up.
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

// MixingAlphaOfEigenvalue returns the constant α = |λ̂₂|/(1 − |λ̂₂|) of Theorem 1 in the FedDec paper for the second
// eigenvalue |λ̂₂|. It returns +Inf for eigenvalues of at least 1, which means that the agents do not mix.
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

// secondLargestEigenvalue returns the largest absolute eigenvalue of a symmetric matrix S on the vectors orthogonal to
// the all-ones vector 𝟙. The matrix must satisfy S𝟙 = 𝟙.
func secondLargestEigenvalue(s *mat.SymDense) float64 {
	lambda := symmetricEigenvalues(centeredMatrix(s))
	return max(math.Abs(lambda[0]), math.Abs(lambda[len(lambda)-1]))
}

// centeredMatrix returns S − 𝟙𝟙ᵀ/n for an n×n matrix S, where 𝟙 is the all-ones vector.
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

// symmetricEigenvalues returns the eigenvalues of a symmetric matrix, largest first. The QL iteration in gonum fails
// only for matrices with infinite elements or NaN, and such weights are rejected as input.
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
