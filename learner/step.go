package learner

import "github.com/fedmesh/fedmesh/spec"

// step takes one step φ ← φ − μ·Scale·(∇Q(φ; Batch) + Noise + what by adds) in place on w, of length d, and returns the
// mean risk of the batch at the w before it, the ridge perhaps left out. It leaves w alone if that risk is not finite.
//
// Written out here is a step on one row of a model like linear regression with 25 features: the calls and the
// views that any network needs would cost four times the arithmetic. networkStep gives the same bits.
func (m *Model[T]) step(w []T, d *Draw[T], mu float64, by *Correction[T]) float64 {
	x := d.Batch.X
	if !m.short || len(d.Batch.Y) != 1 || len(x) != m.arch.Inputs || d.Noise != nil || !by.none() {
		return m.networkStep(w, d, mu, by)
	}
	mu *= d.Scale
	y, z := d.Batch.Y[0], dotLoop(w[:len(x)], x)
	if m.arch.Bias {
		z += w[len(x)]
	}
	miss := z - y
	risk := 0.5 * float64(miss) * float64(miss)
	if m.arch.Risk != spec.RiskSquared {
		m.reserve(1)
		out, delta := m.act[0][:1], m.delta[0][:1]
		out[0] = z
		risk = m.loss.Risk(delta, out, y)
		miss = delta[0]
	}
	if !finite(risk) {
		return risk
	}
	if m.arch.Ridge > 0 {
		m.k.axpy(T(-mu*m.arch.Ridge), w, w)
	}
	c := T(T(-mu) * miss)
	if m.arch.Bias {
		w[len(x)] += c
	}
	w = w[:len(x)]
	for i, v := range x {
		w[i] += T(c * v)
	}
	return risk
}

func (m *Model[T]) networkStep(w []T, d *Draw[T], mu float64, by *Correction[T]) float64 {
	mu *= d.Scale
	m.check(w, d.Batch)
	by.keep(w)
	risk := m.batchStep(w, d.Batch, mu, by)
	if d.Noise != nil && finite(risk) {
		m.checkVector("noise", d.Noise)
		m.k.axpy(T(-mu), d.Noise, w)
	}
	by.restore(w)
	return risk
}

func (m *Model[T]) batchStep(w []T, b Batch[T], mu float64, by *Correction[T]) float64 {
	if len(b.Y) > blockRows {
		if m.grad == nil {
			m.grad = make([]T, m.params)
		}
		risk := m.Gradient(m.grad, w, b)
		if finite(risk) {
			by.shrink(w, mu, 0, &m.k) // the gradient has the ridge
			m.k.axpy(T(-mu), m.grad, w)
		}
		return risk
	}
	n := float64(len(b.Y))
	risk := m.backward(w, b) / n
	if !finite(risk) {
		return risk
	}
	by.shrink(w, mu, m.arch.Ridge, &m.k)
	m.addGradient(w, b, -mu/n)
	return risk
}
