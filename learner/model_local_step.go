package learner

// step takes one step φ ← φ − μ·Scale·(∇Q(φ; Batch) + Noise + what by adds) in place on w, of length d, and returns the
// mean risk of the batch at the w before it, the ridge perhaps left out. It leaves w alone if that risk is not finite.
func (m *Model[T]) step(w []T, d *StepDraw[T], mu float64, by *StepCorrection[T]) float64 {
	x := d.Batch.X
	if m.rowStepper == nil || len(d.Batch.Y) != 1 || len(x) != m.arch.Inputs || d.Noise != nil || !by.isEmpty() {
		return m.generalStep(w, d, mu, by)
	}
	return m.rowStepper.shortRowStep(w, x, d.Batch.Y[0], mu*d.Scale, m.arch.Ridge)
}

// generalStep is step for any kind, number of rows, noise and correction.
func (m *Model[T]) generalStep(w []T, d *StepDraw[T], mu float64, by *StepCorrection[T]) float64 {
	mu *= d.Scale
	m.checkBatch(w, d.Batch)
	by.saveFrozen(w)
	risk := m.batchStep(w, d.Batch, mu, by)
	if finite(risk) {
		m.addNoiseAndCorrection(T(-mu), d, by, w)
	}
	by.restoreFrozen(w)
	return risk
}

// addNoiseAndCorrection adds scale times the vectors of a draw and of a correction to dst.
func (m *Model[T]) addNoiseAndCorrection(scale T, d *StepDraw[T], by *StepCorrection[T], dst []T) {
	if d.Noise != nil {
		m.checkVector("noise", d.Noise)
		m.k.axpy(scale, d.Noise, dst)
	}
	if by.ControlVariate != nil {
		m.checkVector("correction", by.ControlVariate)
		m.k.axpy(scale, by.ControlVariate, dst)
	}
}

func (m *Model[T]) batchStep(w []T, b Batch[T], mu float64, by *StepCorrection[T]) float64 {
	if b.tableReader != nil && b.Len() <= rowBlockSize {
		b = b.rowBlock(0)
	}
	if b.Len() > rowBlockSize {
		if m.grad == nil {
			m.grad = make([]T, m.params)
		}
		risk := m.Gradient(m.grad, w, b)
		if finite(risk) {
			by.applyRidgeAndProximal(w, mu, 0, &m.k) // the gradient has the ridge
			m.k.axpy(T(-mu), m.grad, w)
		}
		return risk
	}
	n := float64(len(b.Y))
	risk := m.objective.Backward(w, b) / n
	if !finite(risk) {
		return risk
	}
	by.applyRidgeAndProximal(w, mu, m.arch.Ridge, &m.k)
	m.objective.AddGradient(w, b, -mu/n)
	return risk
}
