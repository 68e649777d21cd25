package theory

// Mixture describes K independent random vectors a_1 … a_K, of which L are sampled (Vlaski and Sayed, chapter 5, Lemma
// 5.1).
type Mixture struct {
	Means     [][]float64 // means ā_k of the vectors
	Variances []float64   // variances E‖a_k − ā_k‖² of the vectors, summed over the elements
}

// parts returns the mean variance within the vectors, (1/K)Σσ_{a_k}², and the variance between the means of the
// vectors, (1/K)Σ‖ā − ā_k‖².
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

// WithoutReplacement returns the variance E‖â − ā‖² of the mean â of l vectors that are drawn without replacement
// (Vlaski and Sayed, chapter 5, eq. (5.33) with L = l):
//
//	(1/KL)Σσ_{a_k}² + (1/KL)·(K−L)/(K−1)·Σ‖ā − ā_k‖²
func (m Mixture) WithoutReplacement(l int) float64 {
	within, between := m.parts()
	return (within + withoutReplacementFactor(len(m.Means), l)*between) / float64(l)
}

// WithReplacement returns the variance E‖â − ā‖² of the mean â of l draws with replacement. A vector that is drawn
// twice contributes two independent samples. The result equals eq. (5.33) in chapter 5 of Vlaski and Sayed without the
// factor (K−L)/(K−1).
func (m Mixture) WithReplacement(l int) float64 {
	within, between := m.parts()
	return (within + between) / float64(l)
}

// WithRepetition returns the variance E‖â − ā‖² of the mean â of l draws with replacement. A vector that is drawn twice
// contributes the same sample with double weight, as in line 9 of Algorithm 1 in the FedDec paper.
func (m Mixture) WithRepetition(l int) float64 {
	within, between := m.parts()
	k := float64(len(m.Means))
	return (within*(1+float64(l-1)/k) + between) / float64(l)
}
