// Package graph is who can mix with whom: graphs of agents, where they come from, the weights of their edges, and how
// fast mixing over them forgets differences.
//
//	g, err := graph.ConnectedGeographicGraph(20, 0.35, rng)         // feddec section 4: linked when nearer than 0.35
//	mixing, err := graph.NewMixingMatrix(g, spec.EdgeWeightsBestConstant)      // W = I − Σ w_ij (e_i−e_j)(e_i−e_j)ᵀ
//	mixing.SecondEigenvalue(1)                                 // |λ̂₂| when no link fails
//	mixing.ComputeActiveWeights(weights, up, degrees)          // W^t on the links that are up, for d2d.MixAllNodes
//
// A mixing matrix is kept as one weight an edge: W is symmetric, and its diagonal, the own weights, is 1 minus the
// row's other weights, so that W𝟙 = 𝟙 holds whatever the weights are.
//
// Four rules weigh the edges. [spec.EdgeWeightsMetropolis] knows degrees only, and is what failing links use;
// [spec.EdgeWeightsBestConstant] is what feddec's Table 1 has; [spec.EdgeWeightsMaxDegree] is there to compare;
// [spec.EdgeWeightsFastest] solves a semidefinite program, in O(m³) for m edges: 10 ms for 90 edges, 0.15 s for 540,
// some seconds for 2,000, above which it refuses a graph. Best-constant and fastest weights may leave a negative own
// weight, which the document's Assumption 2 (iii) does not have: they still contract, as |λ₂| < 1. [CapNodeWeightSums]
// is for flows that may be late.
//
// Eigenvalues come from gonum's dense solver: O(n³), about a second for 1,000 nodes, with memory of a few n² numbers.
// Of larger graphs only the ends of the spectrum are computed, from products with the edges, for |λ₂(W)| and the best
// constant.
package graph
