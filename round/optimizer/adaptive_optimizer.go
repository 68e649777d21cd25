package optimizer

import "math"

// adaptiveOptimizer implements the common part of the adaptive optimisers (Reddi et al. 2021, Algorithm 2). In round i
// the first moment of the aggregated update D_i is m_i = β₁ m_{i−1} + (1−β₁) D_i, and the model is w_i = w_{i−1} + η
// m_i/(√v_i + τ), where η is the learning rate. Initially m_0 = 0 and v_0 = τ². There is no bias correction. The
// optimisers differ in the second moment v_i.
type adaptiveOptimizer struct {
	learningRate, beta1, tau float64
	// function that computes the second moment v_i from v_{i−1} and the squared aggregated update D_i²
	nextSecondMoment func(v, d2 float64) float64
}

func (adaptiveOptimizer) StateVectorNames() []string { return []string{"m", "v"} }

func (o adaptiveOptimizer) InitState(state [][]float64) {
	clear(state[0])
	for j := range state[1] {
		state[1][j] = float64(o.tau * o.tau)
	}
}

func (o adaptiveOptimizer) Step(d []float64, state [][]float64) {
	m, v := state[0], state[1]
	for j, x := range d {
		m[j] = float64(o.beta1*m[j]) + float64((1-o.beta1)*x)
		v[j] = o.nextSecondMoment(v[j], float64(x*x))
		d[j] = float64(o.learningRate*m[j]) / (math.Sqrt(v[j]) + o.tau)
	}
}
