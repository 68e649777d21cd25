// Package d2d implements the mixing (weighted averaging) of parameters between neighbouring agents, which takes place
// between server rounds (Costantini et al., the FedDec paper, Algorithm 1, line 6).
//
// In a mixing step, agent i replaces its parameters x_i by Σ_j W_ij x_j, where the mixing matrix W is symmetric and
// doubly stochastic. The step is computed as antisymmetric flows over the edges with weights w_ij,
//
//	x_i ← x_i + Σ_j w_ij (x_j − x_i),
//
// so the gain of one end is the loss of the other. The mean of the agents is therefore conserved for any set of active
// edges. [AddParameterFlow] computes one end of one edge; [MixAllNodes] computes a whole step of a simulator. Both
// round every product individually and add the flows in the order of the neighbours, so their results are bitwise equal
// on every processor.
//
// The caller provides the weights w_ij of each step; package d2d/graph computes them. The package is pure: it reads no
// clock, starts no goroutine and does no I/O.
package d2d
