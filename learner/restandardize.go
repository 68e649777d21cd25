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
// takes up Σ W_j (m'_j − m_j)/s_j; the last layer of a regression becomes (W s + m − m')/s' of the target's. Of a
// conv1d s'/s and (m' − m)/s must be the same for all steps of a channel, since its filters slide over them: else it is
// an error. Without biases the means stay behind, and the error is ErrNoBias. An error of another kind leaves w as it
// was.
func (m *Model[T]) Restandardize(w []T, from, to Standardization) error {
	if len(from.Mean) != m.arch.Inputs+1 || len(to.Mean) != len(from.Mean) {
		return fmt.Errorf("standardizations of %d and %d columns for a model of %d inputs", len(from.Mean),
			len(to.Mean), m.arch.Inputs)
	}
	before := slices.Clone(w)
	moved, err := m.objective.Restandardize(w, from, to)
	if err != nil {
		copy(w, before)
		return err
	}
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
	moved = otherInputs(w, first, from, to)
	if !risk.Regression() {
		return moved
	}
	return otherOutput(w, last, 0, first.in, from, to) || moved
}

// otherInputs has a first layer take features in other units.
func otherInputs[T Float](w []T, first layer, from, to Standardization) (moved bool) {
	for o := range first.out {
		row, shift := w[first.weight+o*first.in:][:first.in], 0.0
		for j, x := range row {
			shift += float64(x) * (to.Mean[j] - from.Mean[j]) / from.Scale[j]
			row[j] = T(float64(x) * (to.Scale[j] / from.Scale[j]))
		}
		moved = lift(w, first, o, shift) || moved
	}
	return moved
}

// otherOutput has a unit of the last layer give a column in other units.
func otherOutput[T Float](w []T, last layer, unit, column int, from, to Standardization) (moved bool) {
	scale := from.Scale[column] / to.Scale[column]
	row := w[last.weight+unit*last.in:][:last.in]
	for i, x := range row {
		row[i] = T(float64(x) * scale)
	}
	if last.bias >= 0 {
		w[last.bias+unit] = T(float64(w[last.bias+unit]) * scale)
	}
	return lift(w, last, unit, (from.Mean[column]-to.Mean[column])/to.Scale[column])
}

// lift adds to the bias of a unit, if there is one, and reports whether there is anything to add.
func lift[T Float](w []T, l layer, unit int, by float64) bool {
	if l.bias >= 0 {
		w[l.bias+unit] = T(float64(w[l.bias+unit]) + by)
	}
	return by != 0
}
