// Package optimizer contains the server optimisers, which turn the aggregated update D_i of round i into the step of
// the model (Reddi et al. 2021, Algorithm 2).
//
// An optimiser keeps no state of its own: the caller passes the state, in float64, and stores it with the model. The
// table in optimizer.go lists the optimisers, and each optimiser must pass the tests in conformance_test.go.
// docs/ARCHITECTURE.md explains how to add an optimiser.
package optimizer
