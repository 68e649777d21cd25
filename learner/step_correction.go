package learner

// StepCorrection contains terms that are added to the gradient of the loss in each local step. The zero value has no
// effect. If agent k computes a step only with the probability δ_k, the terms are scaled by 1/δ_k like the gradient.
// Reported risks do not include the terms.
type StepCorrection[T Float] struct {
	// ProximalWeight is the factor ρ_p of the term ρ_p (φ − Anchor), which pulls the parameters φ towards the base
	// model (FedProx: Li et al. 2020, equation (2)).
	ProximalWeight float64
	Anchor         []T // base model w_{i−1}, of length d; not modified
	// ControlVariate is a vector of length d that is added to the gradient; nil means that nothing is added. With the
	// value c − c_k, the step is a step of SCAFFOLD, where c and c_k are the server's and the agent's control variates
	// (Karimireddy et al. 2020).
	ControlVariate []T
	// FrozenRanges are the ranges of parameters that no step changes.
	FrozenRanges []ElementRange

	savedFrozenElements []T
}

// ElementRange is the range of elements From to To − 1 of a parameter vector.
type ElementRange struct{ From, To int }

// isEmpty reports whether the correction has no effect.
func (c *StepCorrection[T]) isEmpty() bool {
	return c.ProximalWeight == 0 && c.ControlVariate == nil && len(c.FrozenRanges) == 0
}

// applyRidgeAndProximal applies the ridge penalty with the factor ridge and the proximal term to w, for a step of size
// mu. Both terms use the values of w before the step.
func (c *StepCorrection[T]) applyRidgeAndProximal(w []T, mu, ridge float64, k *vectorKernels[T]) {
	switch {
	case c.ProximalWeight != 0:
		for i, a := range c.Anchor {
			pull := float64(ridge*float64(w[i])) + float64(c.ProximalWeight*float64(w[i]-a))
			w[i] -= T(mu * pull)
		}
	case ridge > 0:
		k.axpy(T(-mu*ridge), w, w)
	}
}

// saveFrozenElements saves the frozen elements of w before a step; restoreFrozenElements restores them after the step.
func (c *StepCorrection[T]) saveFrozenElements(w []T) {
	c.savedFrozenElements = c.savedFrozenElements[:0]
	for _, r := range c.FrozenRanges {
		c.savedFrozenElements = append(c.savedFrozenElements, w[r.From:r.To]...)
	}
}

func (c *StepCorrection[T]) restoreFrozenElements(w []T) {
	at := 0
	for _, r := range c.FrozenRanges {
		at += copy(w[r.From:r.To], c.savedFrozenElements[at:])
	}
}

// clearFrozenGradient sets the frozen elements of a gradient to zero.
func (c *StepCorrection[T]) clearFrozenGradient(grad []T) {
	for _, r := range c.FrozenRanges {
		clear(grad[r.From:r.To])
	}
}
