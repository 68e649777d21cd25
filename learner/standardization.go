package learner

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// Standardization describes the mapping of each column to (x − mean)/scale, with features clipped to ±Clip. Mean and
// Scale have one element per feature, followed by one element for the target.
type Standardization struct {
	Mean, Scale []float64
	Clip        float64 // largest magnitude of a standardised feature; 0 means no clipping
}

// Standardization returns the standardisation by the mean and the standard deviation of each column. A constant column
// has the scale 1. The target of a regression is treated like a feature; class labels do not change. The moments must
// describe at least one row.
func (m *ColumnMoments) Standardization(risk spec.LossKind, clip float64) Standardization {
	columns := len(m.Mean)
	st := Standardization{Mean: make([]float64, columns), Scale: make([]float64, columns), Clip: clip}
	for j := range columns {
		st.Mean[j], st.Scale[j] = m.Mean[j], 1
		if !m.IsConstantColumn(j) {
			st.Scale[j] = math.Sqrt(m.SquaredDeviations[j] / m.RowCount)
		}
	}
	st.keepLabelsUnscaled(risk)
	return st
}

// KeepTargetUnscaled sets the mean and scale of the target to 0 and 1, for rows without a target.
func (st *Standardization) KeepTargetUnscaled() {
	last := len(st.Mean) - 1
	st.Mean[last], st.Scale[last] = 0, 1
}

// keepLabelsUnscaled sets the mean and scale of class labels to 0 and 1.
func (st *Standardization) keepLabelsUnscaled(risk spec.LossKind) {
	if !risk.StandardizesTarget() {
		st.KeepTargetUnscaled()
	}
}

// Same reports whether two standardisations are equal.
func (st Standardization) Same(other Standardization) bool {
	return slices.Equal(st.Mean, other.Mean) && slices.Equal(st.Scale, other.Scale) && st.Clip == other.Clip
}

// Validate returns an error for every invalid value of a received standardisation.
func (st Standardization) Validate() error {
	var errs []error
	if len(st.Mean) < 2 || len(st.Mean) != len(st.Scale) {
		errs = append(errs,
			fmt.Errorf("standardization: got %d means and %d scales, but need one of each per feature and for the "+
				"target",
				len(st.Mean), len(st.Scale)))
	}
	for j, v := range st.Mean {
		if !isFinite(v) {
			errs = append(errs, fmt.Errorf("standardization: mean of column %d is %v, but must be a finite number",
				j, v))
		}
	}
	for j, v := range st.Scale {
		if !(v > 0) || !isFinite(v) {
			errs = append(errs, fmt.Errorf("standardization: scale of column %d is %v, but must be positive and "+
				"finite",
				j, v))
		}
	}
	if !(st.Clip >= 0) || !isFinite(st.Clip) {
		errs = append(errs, fmt.Errorf("standardization: clip is %v, but must be finite and not negative", st.Clip))
	}
	return errors.Join(errs...)
}

// Standardize applies a valid standardisation in place to samples in memory. It returns an error if the samples and the
// standardisation have different numbers of features.
func (s *Samples[T]) Standardize(st Standardization) error {
	if len(st.Mean) != s.featureCount+1 {
		return fmt.Errorf("standardization has %d features, but the samples have %d", len(st.Mean)-1, s.featureCount)
	}
	standardizeRows(st, s.featureCount, s.x, s.y)
	return nil
}

func standardizeRows[T Float](st Standardization, inputs int, x, y []T) {
	for i, target := range y {
		standardizeRowFeatures(st, x[i*inputs:][:inputs])
		y[i] = T((float64(target) - st.Mean[inputs]) / st.Scale[inputs])
	}
}

// MapAndStandardizeAgain applies [Samples.MapLabels] and [Samples.Standardize] in place to rows that both methods have
// accepted before. An empty st means no standardisation. It is safe for concurrent use.
func (m *Model[T]) MapAndStandardizeAgain(st Standardization, x, y []T) {
	_ = m.objective.MapLabels(y, &LabelHistory{})
	if len(st.Mean) > 0 {
		standardizeRows(st, m.arch.Inputs, x, y)
	}
}

// standardizeRowFeatures applies a standardisation to the features of one row, in place.
func standardizeRowFeatures[T Float](st Standardization, x []T) {
	for j, v := range x {
		z := (float64(v) - st.Mean[j]) / st.Scale[j]
		if st.Clip > 0 {
			z = min(max(z, -st.Clip), st.Clip)
		}
		x[j] = T(z)
	}
}

// RestoreTarget converts a standardised target, or a prediction of a standardised target, to the units of the data.
func (st Standardization) RestoreTarget(y float64) float64 {
	last := len(st.Mean) - 1
	return y*st.Scale[last] + st.Mean[last]
}
