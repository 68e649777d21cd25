package optimizer

// fedAvgM implements the optimiser FedAvgM, gradient descent with momentum (Hsu et al. 2019). For the aggregated update
// D_i of round i, the momentum vector is m_i = β m_{i−1} + D_i and the model is w_i = w_{i−1} + η m_i, where β is the
// momentum and η is the learning rate. With β = 0 and η = 1, the step of the model is bitwise equal to D_i.
type fedAvgM struct{ learningRate, momentum float64 }

func newFedAvgM(c Config) Optimizer { return fedAvgM{c.LearningRate, c.Momentum} }

func (fedAvgM) StateVectorNames() []string { return []string{"m"} }

func (fedAvgM) InitState(state [][]float64) { clear(state[0]) }

func (o fedAvgM) Step(d []float64, state [][]float64) {
	m := state[0]
	for j, x := range d {
		if o.momentum > 0 { // Skip the addition without momentum, since the addition would turn −0 into +0.
			x += float64(o.momentum * m[j])
		}
		m[j], d[j] = x, float64(o.learningRate*x)
	}
}
