package optimizer

// newFedAdam returns the optimiser FedAdam. For the aggregated update D_i of round i, its second moment is v_i = β₂
// v_{i−1} + (1−β₂) D_i², with the decay rate β₂.
func newFedAdam(c Config) Optimizer {
	return adaptiveOptimizer{c.LearningRate, c.Beta1, c.Tau, func(v, d2 float64) float64 {
		return float64(c.Beta2*v) + float64((1-c.Beta2)*d2)
	}}
}
