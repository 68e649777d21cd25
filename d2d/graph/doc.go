// Package graph defines which agents can mix with each other. It provides graphs of agents, their generators and file
// formats, rules for edge weights, and the speed of mixing over a graph.
//
//	g, err := graph.ConnectedGeographicGraph(20, 0.35, rng)         // feddec section 4: linked when nearer than 0.35
//	mixing, err := graph.NewMixingMatrix(g, spec.EdgeWeightsBestConstant)      // W = I − Σ w_ij (e_i−e_j)(e_i−e_j)ᵀ
//	mixing.SecondEigenvalue(1)                                 // |λ̂₂| when no link fails
//	mixing.ComputeActiveWeights(weights, up, degrees)          // W^t on the links that are up, for d2d.MixAllNodes
//
// A mixing matrix is stored as one weight per edge. W is symmetric, and its diagonal (the own weights) is 1 minus the
// other weights of the row. Therefore W𝟙 = 𝟙 holds for any weights.
//
// Four rules compute the edge weights. [spec.EdgeWeightsMetropolis] depends only on degrees and is used with failing
// links. [spec.EdgeWeightsBestConstant] is used in feddec's Table 1. [spec.EdgeWeightsMaxDegree] is provided for
// comparison. [spec.EdgeWeightsFastest] solves a semidefinite program in O(m³) for m edges: 10 ms for 90 edges, 0.15 s
// for 540, some seconds for 2,000, which is the maximum. Best-constant and fastest weights may give negative own
// weights, which the document's Assumption 2 (iii) excludes. They still contract, because |λ₂| < 1. [CapNodeWeightSums]
// adapts weights to flows that may be late.
//
// Eigenvalues are computed with gonum's dense solver in O(n³), about a second for 1,000 nodes, with memory for a few n²
// numbers. For larger graphs only the extreme eigenvalues are computed, from products with the edges, for |λ₂(W)| and
// the best constant weights.
package graph
