package learner

// takeStep takes one local step φ ← φ − μ·GradientScale·(∇Q(φ; Batch) + Noise + Correction) with the step size μ, and
// updates the parameters w in place. It returns the mean risk of the batch before the step, possibly without the ridge
// penalty. If that risk is not finite, takeStep does not change w.
func (m *Model[T]) takeStep(w []T, d *StepDraw[T], mu float64, by *StepCorrection[T]) float64 {
	x := d.Batch.X
	if m.rowStepper == nil || len(d.Batch.Y) != 1 || len(x) != m.arch.Inputs || d.Noise != nil || !by.isEmpty() {
		return m.takeGeneralStep(w, d, mu, by)
	}
	return m.rowStepper.takeShortRowStep(w, x, d.Batch.Y[0], mu*d.GradientScale, m.arch.Ridge)
}

// takeGeneralStep performs takeStep for any kind of model, any number of rows, and any noise and correction.
func (m *Model[T]) takeGeneralStep(w []T, d *StepDraw[T], mu float64, by *StepCorrection[T]) float64 {
	mu *= d.GradientScale
	m.checkBatchDimensions(w, d.Batch)
	by.saveFrozenElements(w)
	risk := m.takeBatchStep(w, d.Batch, mu, by)
	if isFinite(risk) {
		m.addNoiseAndCorrection(T(-mu), d, by, w)
	}
	by.restoreFrozenElements(w)
	return risk
}

// addNoiseAndCorrection adds the noise of a draw and the control variate of a correction, multiplied by scale, to dst.
func (m *Model[T]) addNoiseAndCorrection(scale T, d *StepDraw[T], by *StepCorrection[T], dst []T) {
	if d.Noise != nil {
		m.checkVectorLength("noise", d.Noise)
		m.kernels.axpy(scale, d.Noise, dst)
	}
	if by.ControlVariate != nil {
		m.checkVectorLength("correction", by.ControlVariate)
		m.kernels.axpy(scale, by.ControlVariate, dst)
	}
}

func (m *Model[T]) takeBatchStep(w []T, b Batch[T], mu float64, by *StepCorrection[T]) float64 {
	if b.tableReader != nil && b.Len() <= rowBlockSize {
		b = b.rowBlock(0)
	}
	if b.Len() > rowBlockSize {
		if m.gradientScratch == nil {
			m.gradientScratch = make([]T, m.parameterCount)
		}
		risk := m.Gradient(m.gradientScratch, w, b)
		if isFinite(risk) {
			// Pass the ridge 0, since the gradient already includes the ridge.
			by.applyRidgeAndProximal(w, mu, 0, &m.kernels)
			m.kernels.axpy(T(-mu), m.gradientScratch, w)
		}
		return risk
	}
	n := float64(len(b.Y))
	risk := m.objective.Backward(w, b) / n
	if !isFinite(risk) {
		return risk
	}
	by.applyRidgeAndProximal(w, mu, m.arch.Ridge, &m.kernels)
	m.objective.AddGradient(w, b, -mu/n)
	return risk
}
