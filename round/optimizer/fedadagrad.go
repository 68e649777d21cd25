package optimizer

// newFedAdagrad returns the optimiser FedAdagrad, whose second moment is v_i = v_{i−1} + D_i² for the aggregated update
// D_i, with β₁ = 0.
func newFedAdagrad(c Config) Optimizer {
	return adaptiveOptimizer{c.LearningRate, 0, c.Tau, func(v, d2 float64) float64 { return v + d2 }}
}
