package theory

// Mixture is the independent random vectors a_1 … a_K of ch5 Lemma 5.1.
type Mixture struct {
	Means     [][]float64 // ā_k
	Variances []float64   // σ_{a_k}² = E‖a_k − ā_k‖², in total over the coordinates
}

// parts is (1/K)Σσ_{a_k}² and (1/K)Σ‖ā − ā_k‖².
func (m Mixture) parts() (within, between float64) {
	k := float64(len(m.Means))
	mean := make([]float64, len(m.Means[0]))
	for _, a := range m.Means {
		for j, v := range a {
			mean[j] += v / k
		}
	}
	for i, a := range m.Means {
		within += m.Variances[i] / k
		for j, v := range a {
			between += (v - mean[j]) * (v - mean[j]) / k
		}
	}
	return within, between
}

// WithoutReplacement is E‖â − ā‖² for the mean â of L of the a_k, drawn without replacement (ch5 (5.33)):
//
//	(1/KL)Σσ_{a_k}² + (1/KL)·(K−L)/(K−1)·Σ‖ā − ā_k‖²
func (m Mixture) WithoutReplacement(l int) float64 {
	within, between := m.parts()
	return (within + withoutReplacementFactor(len(m.Means), l)*between) / float64(l)
}

// WithReplacement is E‖â − ā‖² for L independent draws from the mixture: an agent that is drawn twice answers twice. It
// is (5.33) without the factor (K−L)/(K−1).
func (m Mixture) WithReplacement(l int) float64 {
	within, between := m.parts()
	return (within + between) / float64(l)
}

// WithRepetition is E‖â − ā‖² for L draws with replacement where an agent that is drawn twice answers once and counts
// twice, as a server does that averages what it received (feddec Alg. 1 line 9): two draws share a_k with probability
// 1/K.
func (m Mixture) WithRepetition(l int) float64 {
	within, between := m.parts()
	k := float64(len(m.Means))
	return (within*(1+float64(l-1)/k) + between) / float64(l)
}
