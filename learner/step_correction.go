package learner

// StepCorrection is what changes every local step beside the gradient of the risk, of all algorithms and kinds of
// model. Its zero value changes nothing. What it adds to the gradient stands inside the bracket of 2nd-order (42): it
// is scaled by 1/δ_k and skipped with the rest. No reported risk has it.
type StepCorrection[T Float] struct {
	// ProximalWeight is ρ_p of the term ρ_p (φ − Anchor) that is added (FedProx: Li et al. 2020, (2)).
	ProximalWeight float64
	Anchor         []T // w_{i−1}, of length d; not changed
	// ControlVariate, of length d, is added; nil = nothing. With c − c_k of SCAFFOLD a step is that of Karimireddy et
	// al. 2020.
	ControlVariate []T
	// FrozenRanges are the tensors whose elements no step changes.
	FrozenRanges []ElementRange

	savedFrozenElements []T
}

// ElementRange is the elements From to To − 1 of the flat vector.
type ElementRange struct{ From, To int }

// isEmpty reports that there is nothing to correct.
func (c *StepCorrection[T]) isEmpty() bool {
	return c.ProximalWeight == 0 && c.ControlVariate == nil && len(c.FrozenRanges) == 0
}

// applyRidgeAndProximal takes the parts of a step of size mu that are linear in w: the ridge ρ and the proximal term,
// both at the w before it.
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

// saveFrozenElements remembers the frozen elements of w before a step, and restore puts them back after it.
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

// clearFrozenGradient takes the frozen elements out of a gradient.
func (c *StepCorrection[T]) clearFrozenGradient(grad []T) {
	for _, r := range c.FrozenRanges {
		clear(grad[r.From:r.To])
	}
}
