// Package optimizer says how the fold D_i of round i becomes the step of the model (Reddi et al. 2021, Alg. 2).
//
// An optimiser is pure: its state is handed to it, in float64, and belongs to the model that it made. The table in
// optimizer.go names the optimisers; a new one costs a file, a line there, and a paragraph in docs/ALGORITHMS.md. Every
// optimiser must pass the suite in conformance_test.go.
package optimizer
