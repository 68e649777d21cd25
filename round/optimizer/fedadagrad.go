package optimizer

// newFedAdagrad makes FedAdagrad: v_i = v_{i−1} + D_i², and β₁ = 0.
func newFedAdagrad(c Config) Optimizer {
	return adaptiveOptimizer{c.LearningRate, 0, c.Tau, func(v, d2 float64) float64 { return v + d2 }}
}
