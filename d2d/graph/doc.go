// Package graph is who can mix with whom: graphs of agents, where they come from, the weights of their edges, and how fast
// mixing over them forgets differences.
//
//	g, err := graph.ConnectedGeographic(20, 0.35, rng)         // feddec section 4: linked when nearer than 0.35
//	mixing, err := graph.NewMixing(g, graph.BestConstant)      // W = I − Σ w_ij (e_i−e_j)(e_i−e_j)ᵀ
//	mixing.SecondEigenvalue(1)                                 // |λ̂₂| when no link fails
//	mixing.ActiveTo(weights, up, degrees)                      // W^t on the links that are up, for d2d.Mix
//
// A mixing matrix is kept as one weight an edge: W is symmetric, and its diagonal, the own weights, is 1 minus the row's
// other weights, so that W𝟙 = 𝟙 holds whatever the weights are.
//
// Eigenvalues come from gonum's dense solver: O(n³), about a second for 1,000 nodes, with memory of a few n² numbers.
package graph
