// Package optimizer turns the aggregated update D_i of round i into the step of the model (Reddi et al. 2021, Alg. 2).
//
// An optimiser is pure: the caller passes its state, in float64, and stores the state with the model. The table in
// optimizer.go names the optimisers, and every optimiser must pass the suite in conformance_test.go.
// docs/ARCHITECTURE.md lists the steps to add one.
package optimizer
