package learner

import (
	"math"
	"slices"
)

const (
	// robustRows is how many rows, spread evenly over all, give the median and the MAD of a column.
	robustRows = 4096
	// robustWidth is the largest distance from the median of a value that is no outlier, in units of 1.4826 MAD. For
	// normal values this unit is σ. Of exponential values, 3 in 10⁷ are further away.
	robustWidth = 20
	// madSigma times the median absolute deviation (MAD) is σ of normal values.
	madSigma = 1.4826
)

// Bounds is the interval [median − 20·1.4826·MAD, median + 20·1.4826·MAD] of a column. Values outside are outliers. For
// a column with mostly equal values it is the whole line, since the MAD is 0.
type Bounds struct{ Low, Median, High float64 }

// Outside reports whether v is an outlier.
func (b Bounds) Outside(v float64) bool { return v < b.Low || v > b.High }

// inside returns v, or the median in the place of an outlier.
func (b Bounds) inside(v float64) float64 {
	if b.Outside(v) {
		return b.Median
	}
	return v
}

// RobustBounds returns the bounds of each column of s, the features and then the target, from at most 4096 rows that
// are spread evenly over s.
func RobustBounds[T Float](s *Samples[T]) []Bounds {
	const piece = 64
	columns := make([][]float64, s.Inputs()+1)
	all, step := s.All(), max(piece, s.Len()/(robustRows/piece))
	for from := 0; from < s.Len(); from += step {
		b := all.Part(from, min(piece, s.Len()-from))
		for i, y := range b.Y {
			for j, v := range b.X[i*s.inputs:][:s.inputs] {
				columns[j] = append(columns[j], float64(v))
			}
			columns[s.inputs] = append(columns[s.inputs], float64(y))
		}
	}
	bounds := make([]Bounds, len(columns))
	for j, values := range columns {
		bounds[j] = boundsOf(values)
	}
	return bounds
}

// boundsOf returns the bounds of a column. It reorders the values.
func boundsOf(values []float64) Bounds {
	if len(values) == 0 {
		return Bounds{math.Inf(-1), 0, math.Inf(1)}
	}
	slices.Sort(values)
	median := values[len(values)/2]
	for i, v := range values {
		values[i] = math.Abs(v - median)
	}
	slices.Sort(values)
	reach := robustWidth * madSigma * values[len(values)/2]
	if reach == 0 {
		return Bounds{math.Inf(-1), 0, math.Inf(1)}
	}
	return Bounds{median - reach, median, median + reach}
}

// Outliers describes the values of a column outside of its bounds.
type Outliers struct {
	Column   int // the target is the last
	N        int
	Worst    float64 // the outlier with the largest distance from the bounds
	Low      float64 // the least of the other values
	High     float64 // the largest of them
	of       Bounds
	furthest float64
}

// FindOutliers returns the columns of s that have values outside of their bounds. It reads all rows.
func FindOutliers[T Float](s *Samples[T]) []Outliers {
	bounds := RobustBounds(s)
	found := make([]Outliers, len(bounds))
	for j := range found {
		found[j] = Outliers{Column: j, Low: math.Inf(1), High: math.Inf(-1), of: bounds[j]}
	}
	all := s.All()
	for from := 0; from < s.Len(); from += blockRows {
		block := all.block(from)
		for i, y := range block.Y {
			for j, v := range block.X[i*s.inputs:][:s.inputs] {
				found[j].take(float64(v))
			}
			found[s.inputs].take(float64(y))
		}
	}
	return slices.DeleteFunc(found, func(o Outliers) bool { return o.N == 0 })
}

func (o *Outliers) take(v float64) {
	if !o.of.Outside(v) {
		o.Low, o.High = min(o.Low, v), max(o.High, v)
		return
	}
	o.N++
	if d := max(o.of.Low-v, v-o.of.High); d > o.furthest {
		o.furthest, o.Worst = d, v
	}
}

// RobustMoments returns the moments of all rows of s, with each outlier replaced by the median of its column: two
// readings of −9999 among 1,500 of 0.5 do not set the scale. Without outliers the result is that of MomentsOf, to the
// bit.
func RobustMoments[T Float](s *Samples[T]) *Moments {
	bounds := RobustBounds(s)
	m := newMoments(s.Inputs())
	all := s.All()
	row := make([]float64, s.Inputs())
	for from := 0; from < s.Len(); from += blockRows {
		block := all.block(from)
		for i, y := range block.Y {
			for j, v := range block.X[i*s.inputs:][:s.inputs] {
				row[j] = bounds[j].inside(float64(v))
			}
			addRow(m, row, bounds[s.inputs].inside(float64(y)))
		}
	}
	return m
}
