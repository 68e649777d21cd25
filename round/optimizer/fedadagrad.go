package optimizer

// newFedAdagrad returns the optimiser FedAdagrad. For the aggregated update D_i of round i, its second moment is v_i =
// v_{i−1} + D_i². The decay rate β₁ of its first moment is 0.
func newFedAdagrad(c Config) Optimizer {
	return adaptiveOptimizer{c.LearningRate, 0, c.Tau, func(v, d2 float64) float64 { return v + d2 }}
}
