package learner

// Correction is what changes every local step beside the gradient of the risk, of all algorithms and kinds of model.
// Its zero value changes nothing. What it adds to the gradient stands inside the bracket of 2nd-order (42): it is
// scaled by 1/δ_k and skipped with the rest. No reported risk has it.
type Correction[T Float] struct {
	// Proximal is ρ_p of the term ρ_p (φ − Anchor) that is added (FedProx: Li et al. 2020, (2)).
	Proximal float64
	Anchor   []T // w_{i−1}, of length d; not changed
	// Plus, of length d, is added; nil = nothing. With c − c_k of SCAFFOLD a step is that of Karimireddy et al. 2020.
	Plus []T
	// Frozen are the tensors whose elements no step changes.
	Frozen []Range

	kept []T
}

// Range is the elements From to To − 1 of the flat vector.
type Range struct{ From, To int }

// none reports that there is nothing to correct.
func (c *Correction[T]) none() bool { return c.Proximal == 0 && c.Plus == nil && len(c.Frozen) == 0 }

// shrink takes the parts of a step of size mu that are linear in w: the ridge ρ and the proximal term, both at the w
// before it.
func (c *Correction[T]) shrink(w []T, mu, ridge float64, k *kernel[T]) {
	switch {
	case c.Proximal != 0:
		for i, a := range c.Anchor {
			pull := float64(ridge*float64(w[i])) + float64(c.Proximal*float64(w[i]-a))
			w[i] -= T(mu * pull)
		}
	case ridge > 0:
		k.axpy(T(-mu*ridge), w, w)
	}
}

// keep remembers the frozen elements of w before a step, and restore puts them back after it.
func (c *Correction[T]) keep(w []T) {
	c.kept = c.kept[:0]
	for _, r := range c.Frozen {
		c.kept = append(c.kept, w[r.From:r.To]...)
	}
}

func (c *Correction[T]) restore(w []T) {
	at := 0
	for _, r := range c.Frozen {
		at += copy(w[r.From:r.To], c.kept[at:])
	}
}

// clearFrozen takes the frozen elements out of a gradient.
func (c *Correction[T]) clearFrozen(grad []T) {
	for _, r := range c.Frozen {
		clear(grad[r.From:r.To])
	}
}
