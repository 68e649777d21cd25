package learner

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// ErrNoBias is the error of Restandardize when the model has no biases to take up a change of means.
var ErrNoBias = errors.New("a model without biases cannot take up other means")

// Restandardize rewrites w, of length d, for samples that are standardised by to in place of from: on the same data in
// their own units it predicts what it did before, but where a feature is clipped by one of the two. With x = (raw −
// m)/s of the old standardisation and (m', s') of the new one, a first layer's W_j becomes W_j s'_j/s_j, and its bias
// takes up Σ W_j (m'_j − m_j)/s_j; the last layer of a regression becomes (W s + m − m')/s' of the target's.
// Without biases the means stay behind, and the error is ErrNoBias. An error of another kind leaves w as it was.
func (m *Model[T]) Restandardize(w []T, from, to Standardization) error {
	if len(from.Mean) != m.arch.Inputs+1 || len(to.Mean) != len(from.Mean) {
		return fmt.Errorf("standardizations of %d and %d columns for a model of %d inputs", len(from.Mean),
			len(to.Mean), m.arch.Inputs)
	}
	before := slices.Clone(w)
	moved := m.objective.Restandardize(w, from, to)
	for i, x := range w {
		if x-x != 0 {
			copy(w, before)
			return fmt.Errorf("parameter %d would be %v", i, x)
		}
	}
	if moved && !m.arch.Bias {
		return ErrNoBias
	}
	return nil
}

// restandardize is Objective.Restandardize of layers, of which these are the first and the last.
func restandardize[T Float](w []T, first, last layer, risk spec.Risk, from, to Standardization) (moved bool) {
	for o := range first.out {
		row, shift := w[first.weight+o*first.in:][:first.in], 0.0
		for j, x := range row {
			shift += float64(x) * (to.Mean[j] - from.Mean[j]) / from.Scale[j]
			row[j] = T(float64(x) * (to.Scale[j] / from.Scale[j]))
		}
		moved = lift(w, first, o, shift) || moved
	}
	if !risk.Regression() {
		return moved
	}
	target := first.in
	scale := from.Scale[target] / to.Scale[target]
	for i := range last.in * last.out {
		w[last.weight+i] = T(float64(w[last.weight+i]) * scale)
	}
	if last.bias >= 0 {
		w[last.bias] = T(float64(w[last.bias]) * scale)
	}
	return lift(w, last, 0, (from.Mean[target]-to.Mean[target])/to.Scale[target]) || moved
}

// lift adds to the bias of a unit, if there is one, and reports whether there is anything to add.
func lift[T Float](w []T, l layer, unit int, by float64) bool {
	if l.bias >= 0 {
		w[l.bias+unit] = T(float64(w[l.bias+unit]) + by)
	}
	return by != 0
}
