package optimizer

// fedAvgM is FedAvgM (Hsu et al. 2019): m_i = β m_{i−1} + D_i, w_i = w_{i−1} + η m_i; without 1 − β, and not
// Nesterov's. With β = 0 and η = 1 it is none, to the bit.
type fedAvgM struct{ learningRate, momentum float64 }

func newFedAvgM(c Config) Optimizer { return fedAvgM{c.LearningRate, c.Momentum} }

func (fedAvgM) StateVectorNames() []string { return []string{"m"} }

func (fedAvgM) InitState(state [][]float64) { clear(state[0]) }

func (o fedAvgM) Step(d []float64, state [][]float64) {
	m := state[0]
	for j, x := range d {
		if o.momentum > 0 { // else −0 would become +0
			x += float64(o.momentum * m[j])
		}
		m[j], d[j] = x, float64(o.learningRate*x)
	}
}
