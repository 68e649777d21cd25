package optimizer

// avgM is FedAvgM (Hsu et al. 2019): m_i = β m_{i−1} + D_i, w_i = w_{i−1} + η m_i; without 1 − β, and not Nesterov's.
// With β = 0 and η = 1 it is none, to the bit.
type avgM struct{ rate, beta float64 }

func newAvgM(c Config) Optimizer { return avgM{c.LearningRate, c.Momentum} }

func (avgM) StateVectorNames() []string { return []string{"m"} }

func (avgM) InitState(state [][]float64) { clear(state[0]) }

func (o avgM) Step(d []float64, state [][]float64) {
	m := state[0]
	for j, x := range d {
		if o.beta > 0 { // else −0 would become +0
			x += float64(o.beta * m[j])
		}
		m[j], d[j] = x, float64(o.rate*x)
	}
}
