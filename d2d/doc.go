// Package d2d is how nearby agents mix their parameters between server rounds (feddec Alg. 1, line 6).
//
// A step of mixing is x_i ← Σ_j W_ij x_j with a symmetric, doubly stochastic W. It is computed as antisymmetric flows
// over the edges,
//
//	x_i ← x_i + Σ_j w_ij (x_j − x_i),
//
// so that whatever one end gains the other loses, whichever edges take part: the mean of the agents is kept even by a
// W^t that lacks half its links. [AddParameterFlow] is one end of one edge; [MixAllNodes] is a whole step of a
// simulator. Both round every product on its own and add the flows one by one, in the order of the neighbours, so they
// give the same bits, on every processor.
//
// The weights w_ij come from the caller, a set per step; package graph below computes them. The package is pure: it
// reads no clock, starts no goroutine and does no I/O.
package d2d
