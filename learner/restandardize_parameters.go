package learner

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// ErrNoBias is the error of Restandardize when the model has no biases to take up a change of means.
var ErrNoBias = errors.New("a model without biases cannot take up other means")

// RestandardizeParameters rewrites w, of length d, for samples that are standardised by to in place of from: on the
// same data in their own units it predicts what it did before, but where a feature is clipped by one of the two. With x
// = (raw − m)/s of the old standardisation and (m', s') of the new one, a first layer's W_j becomes W_j s'_j/s_j, and
// its bias takes up Σ W_j (m'_j − m_j)/s_j; the last layer of a regression becomes (W s + m − m')/s' of the target's.
// Of a conv1d s'/s and (m' − m)/s must be the same for all steps of a channel, since its filters slide over them: else
// it is an error. Without biases the means stay behind, and the error is ErrNoBias. An error of another kind leaves w
// as it was.
func (m *Model[T]) RestandardizeParameters(w []T, from, to Standardization) error {
	if len(from.Mean) != m.arch.Inputs+1 || len(to.Mean) != len(from.Mean) {
		return fmt.Errorf("standardizations of %d and %d columns for a model of %d inputs", len(from.Mean),
			len(to.Mean), m.arch.Inputs)
	}
	before := slices.Clone(w)
	moved, err := m.objective.RestandardizeParameters(w, from, to)
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
	if moved && !m.arch.HasBias {
		return ErrNoBias
	}
	return nil
}

// restandardizeLayers is Objective.Restandardize of layers, of which these are the first and the last.
func restandardizeLayers[T Float](w []T, first, last layer, risk spec.LossKind, from, to Standardization) (moved bool) {
	moved = restandardizeInputs(w, first, from, to)
	if !risk.StandardizesTarget() {
		return moved
	}
	return restandardizeOutput(w, last, 0, first.in, from, to) || moved
}

// restandardizeInputs has a first layer take features in other units.
func restandardizeInputs[T Float](w []T, first layer, from, to Standardization) (moved bool) {
	for o := range first.out {
		row, shift := w[first.weightOffset+o*first.in:][:first.in], 0.0
		for j, x := range row {
			shift += float64(x) * (to.Mean[j] - from.Mean[j]) / from.Scale[j]
			row[j] = T(float64(x) * (to.Scale[j] / from.Scale[j]))
		}
		moved = addToBias(w, first, o, shift) || moved
	}
	return moved
}

// restandardizeOutput has a unit of the last layer give a column in other units.
func restandardizeOutput[T Float](w []T, last layer, unit, column int, from, to Standardization) (moved bool) {
	scale := from.Scale[column] / to.Scale[column]
	row := w[last.weightOffset+unit*last.in:][:last.in]
	for i, x := range row {
		row[i] = T(float64(x) * scale)
	}
	if last.biasOffset >= 0 {
		w[last.biasOffset+unit] = T(float64(w[last.biasOffset+unit]) * scale)
	}
	return addToBias(w, last, unit, (from.Mean[column]-to.Mean[column])/to.Scale[column])
}

// addToBias adds to the bias of a unit, if there is one, and reports whether there is anything to add.
func addToBias[T Float](w []T, l layer, unit int, by float64) bool {
	if l.biasOffset >= 0 {
		w[l.biasOffset+unit] = T(float64(w[l.biasOffset+unit]) + by)
	}
	return by != 0
}
