package optimizer

// newFedYogi returns the optimiser FedYogi. For the aggregated update D_i of round i, its second moment is v_i =
// v_{i−1} − (1−β₂) D_i² sign(v_{i−1} − D_i²), with the decay rate β₂.
func newFedYogi(c Config) Optimizer {
	return adaptiveOptimizer{c.LearningRate, c.Beta1, c.Tau, func(v, d2 float64) float64 {
		switch {
		case v > d2:
			return v - float64((1-c.Beta2)*d2)
		case v < d2:
			return v + float64((1-c.Beta2)*d2)
		}
		return v
	}}
}
