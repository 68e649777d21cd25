// Package graph defines which agents can mix (average their parameters) with each other. It provides graphs of agents,
// their generators and file formats, rules for edge weights, and the speed of mixing over a graph.
//
//	g, err := graph.ConnectedGeographicGraph(20, 0.35, rng)         // FedDec paper, section 4
//	mixing, err := graph.NewMixingMatrix(g, spec.EdgeWeightsBestConstant)      // W = I − Σ w_ij (e_i−e_j)(e_i−e_j)ᵀ
//	mixing.SecondEigenvalue(1)                                 // |λ̂₂| if no link fails
//	mixing.ComputeActiveWeights(weights, up, degrees)          // W^t on the active links, for d2d.MixAllNodes
//
// A mixing matrix W is stored as one weight per edge. W is symmetric, and each diagonal element (the own weight of a
// node) is 1 minus the other weights of the row. Therefore each row sums to 1 for any weights.
//
// Four rules compute the edge weights. [spec.EdgeWeightsMetropolis] depends only on the degrees of the nodes and is
// used with failing links. [spec.EdgeWeightsBestConstant] is used in Table 1 of the FedDec paper.
// [spec.EdgeWeightsMaxDegree] is provided for comparison. [spec.EdgeWeightsFastest] solves a semidefinite program in
// O(m³) for m edges. This takes 10 ms for 90 edges, 0.15 s for 540 edges, and some seconds for 2,000 edges, the
// maximum. Best-constant and fastest weights may give negative own weights, which Assumption 2 (iii) of the paper
// excludes. Mixing with these weights still converges, because |λ₂| < 1. [CapNodeWeightSums] adapts weights to flows
// that may be late.
//
// The eigenvalues of a graph with n nodes are computed by gonum's dense solver in O(n³), which takes about a second for
// 1,000 nodes and memory for a few n² numbers. For larger graphs, only the largest and the smallest eigenvalue are
// computed, by an iteration over the edges. They suffice for |λ₂(W)| and the best constant weights.
package graph
