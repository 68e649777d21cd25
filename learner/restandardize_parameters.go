package learner

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// ErrNoBias is the error if the means of the columns have changed but the model has no biases to compensate for the
// change.
var ErrNoBias = errors.New("a model without biases cannot adapt to different means")

// RestandardizeParameters converts w, of length d, from samples standardised by from to samples standardised by to. On
// the same raw data the predictions do not change, except where a feature is clipped.
//
// Let m and s be the mean and scale of the old standardisation x = (raw − m)/s, and m' and s' the mean and scale of the
// new one. A weight W_j of the first layer becomes W_j s'_j/s_j, and the bias increases by Σ W_j (m'_j − m_j)/s_j. The
// last layer of a regression becomes (W s + m − m')/s', with the means and scales of the target. For a conv1d model,
// s'/s and (m' − m)/s must be the same for all steps of a channel.
//
// Without biases the means are not converted, and the error is ErrNoBias. After any other error w is unchanged.
func (m *Model[T]) RestandardizeParameters(w []T, from, to Standardization) error {
	if len(from.Mean) != m.arch.Inputs+1 || len(to.Mean) != len(from.Mean) {
		return fmt.Errorf("standardizations have %d and %d columns, but the model has %d inputs", len(from.Mean),
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
			return fmt.Errorf("with the new standardization, parameter %d would become %v", i, x)
		}
	}
	if moved && !m.arch.HasBias {
		return ErrNoBias
	}
	return nil
}

// restandardizeLayers implements Objective.RestandardizeParameters for a model whose first and last layers are fully
// connected.
func restandardizeLayers[T Float](w []T, first, last layer, risk spec.LossKind, from, to Standardization) (moved bool) {
	moved = restandardizeInputs(w, first, from, to)
	if !risk.StandardizesTarget() {
		return moved
	}
	return restandardizeOutput(w, last, 0, first.in, from, to) || moved
}

// restandardizeInputs adapts the weights and biases of the first layer to a new standardisation of the features.
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

// restandardizeOutput adapts one unit of the last layer to a new standardisation of the given column.
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

// addToBias adds the number by to the bias of a unit if the layer has biases. It reports whether by differs from 0.
func addToBias[T Float](w []T, l layer, unit int, by float64) bool {
	if l.biasOffset >= 0 {
		w[l.biasOffset+unit] = T(float64(w[l.biasOffset+unit]) + by)
	}
	return by != 0
}
