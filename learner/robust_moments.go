package learner

import (
	"cmp"
	"math"
	"slices"
)

const (
	// maxBoundsRows is the maximum number of rows from which the median and the median absolute deviation (MAD) of a
	// column are computed. The rows are spread evenly over the samples.
	maxBoundsRows = 4096
	// outlierMADFactor is the distance from the median beyond which a value is an outlier. Its unit is 1.4826 times the
	// median absolute deviation (MAD), which is the standard deviation for normally distributed values.
	outlierMADFactor = 20
	// sigmaPerMAD is the standard deviation divided by the median absolute deviation (MAD) for normally distributed
	// values.
	sigmaPerMAD = 1.4826

	// Outliers must be rare. Values outside the bounds are not outliers if their share exceeds maxOutlierShare, or if
	// it exceeds maxDistinctOutlierShare with more than maxDistinctOutliers distinct values. An appliance that is on at
	// times has such values.
	maxOutlierShare, maxDistinctOutlierShare = 0.1, 0.005
	maxDistinctOutliers                      = 8

	// The following constants apply to columns in which more than half of the values are equal, so that the median
	// absolute deviation (MAD) is 0.

	// isolatedOutlierFactor determines when a value is an outlier: when its distance from the median exceeds
	// isolatedOutlierFactor times the largest distance of the other values. For example, rain of 60 mm is 22 times as
	// far from 0 as rain of 2.8 mm, and should not be an outlier.
	isolatedOutlierFactor = 30
	// oppositeSideOutlierFactor replaces isolatedOutlierFactor if all other values lie on the other side of the median.
	// For example, −9999 is 10 times as far from 0 as a solar radiation of 1,000 W/m², and should be an outlier.
	oppositeSideOutlierFactor = 5
	// minBoundSteps is the multiple of the smallest distance from the median up to which a value is never an outlier.
	// For example, rain of 60 mm is 600 steps of a gauge with steps of 0.1 mm. In a column of 0 and 1, however, 999
	// should be an outlier.
	minBoundSteps = 750
)

// sentinels contains common codes for a missing value. These codes are outliers even if more than 10 % of all values of
// a column are such codes.
var sentinels = []float64{-999, -9999, 9999, -99999, 99999, -999999, 999999, math.MinInt16, math.MaxInt16,
	// The numbers 1 << 31 and 1 << 32 are the float32 values nearest to math.MaxInt32 and math.MaxUint32.
	math.MaxUint16, math.MinInt32, math.MaxInt32, 1 << 31, math.MaxUint32, 1 << 32}

// OutlierBounds is the interval [median − 20·1.4826·MAD, median + 20·1.4826·MAD] of a column, where MAD is the median
// absolute deviation. A value outside this interval is an outlier. The interval is unbounded in two cases: if more than
// 10 % of all values lie outside and not all of these are sentinels such as −9999, or if more than 0.5 % of all values,
// with more than 8 distinct values, lie outside. For example, a power of 2,000 W of an appliance with a standby of 0.5
// W is valid.
//
// If more than half of the values are equal, as in a column of rain or of 0 and 1, the MAD is 0. The bounds then follow
// from the distances of the other distinct values from the median. On each side, the bound is 30 times the largest
// distance, or 5 times if all these values lie on the other side, but at least 750 times the smallest distance. The
// values are added in the order of their distances, until a value lies outside the bounds that follow from the values
// added before. At most (n − 1)/10 of n values, rounded up, can be left out in this way. So a rare event is not an
// outlier if other events have a similar size, or if there are no other events.
//
// If all values of a column are equal, the interval is unbounded.
type OutlierBounds struct{ Low, Median, High float64 }

// IsOutlier reports whether the value v lies outside the bounds.
func (b OutlierBounds) IsOutlier(v float64) bool { return v < b.Low || v > b.High }

// medianIfOutlier returns the value v, or the median of the column if v is an outlier.
func (b OutlierBounds) medianIfOutlier(v float64) float64 {
	if b.IsOutlier(v) {
		return b.Median
	}
	return v
}

// FindOutlierBounds returns the outlier bounds of each column of s: first the features and then the target. It uses at
// most 4096 rows, spread evenly over s.
func FindOutlierBounds[T Float](s *Samples[T]) []OutlierBounds {
	const piece = 64
	columns := make([][]float64, s.FeatureCount()+1)
	all, step := s.All(), max(piece, s.Len()/(maxBoundsRows/piece))
	for from := 0; from < s.Len(); from += step {
		b := all.RowRange(from, min(piece, s.Len()-from))
		for i, y := range b.Y {
			for j, v := range b.X[i*s.featureCount:][:s.featureCount] {
				columns[j] = append(columns[j], float64(v))
			}
			columns[s.featureCount] = append(columns[s.featureCount], float64(y))
		}
	}
	bounds := make([]OutlierBounds, len(columns))
	for j, values := range columns {
		bounds[j] = outlierBoundsOf(values)
	}
	return bounds
}

// outlierBoundsOf returns the outlier bounds of a column with the given values. It changes the order of the values.
func outlierBoundsOf(values []float64) OutlierBounds {
	if len(values) == 0 {
		return OutlierBounds{math.Inf(-1), 0, math.Inf(1)}
	}
	slices.Sort(values)
	median := values[len(values)/2]
	distances := make([]float64, len(values))
	for i, v := range values {
		distances[i] = math.Abs(v - median)
	}
	slices.Sort(distances)
	reach := outlierMADFactor * sigmaPerMAD * distances[len(values)/2]
	b := OutlierBounds{median - reach, median, median + reach}
	if reach == 0 {
		b = outlierBoundsWithoutMAD(slices.Clone(values), median)
	}
	outside := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !b.IsOutlier(v) })
	share, distinct := float64(len(outside))/float64(len(values)), slices.Compact(outside)
	isSentinel := func(v float64) bool { return slices.Contains(sentinels, v) }
	if share > maxOutlierShare && slices.ContainsFunc(distinct, func(v float64) bool { return !isSentinel(v) }) ||
		share > maxDistinctOutlierShare && len(distinct) > maxDistinctOutliers {
		return OutlierBounds{math.Inf(-1), median, math.Inf(1)}
	}
	return b
}

// outlierBoundsWithoutMAD returns the outlier bounds of a column whose median absolute deviation (MAD) is 0. The given
// values must be sorted; the function modifies them.
func outlierBoundsWithoutMAD(values []float64, median float64) OutlierBounds {
	values = slices.DeleteFunc(slices.Compact(values), func(v float64) bool { return v == median })
	if len(values) == 0 {
		return OutlierBounds{math.Inf(-1), median, math.Inf(1)}
	}
	distance := func(v float64) float64 { return math.Abs(v - median) }
	slices.SortFunc(values, func(a, b float64) int { return cmp.Compare(distance(a), distance(b)) })
	for n := 9*(len(values)-1)/10 + 1; n < len(values); n++ {
		if b := boundsFromDeviatingValues(values[:n], median); b.IsOutlier(values[n]) {
			return b
		}
	}
	return boundsFromDeviatingValues(values, median)
}

// boundsFromDeviatingValues returns the outlier bounds that follow from the values that differ from the median. These
// values must be sorted by their distance from the median and contain no outliers.
func boundsFromDeviatingValues(values []float64, median float64) OutlierBounds {
	least, largest := minBoundSteps*math.Abs(values[0]-median), math.Abs(values[len(values)-1]-median)
	low, high := max(oppositeSideOutlierFactor*largest, least), max(oppositeSideOutlierFactor*largest, least)
	if slices.Min(values) < median {
		low = max(isolatedOutlierFactor*largest, least)
	}
	if slices.Max(values) > median {
		high = max(isolatedOutlierFactor*largest, least)
	}
	return OutlierBounds{median - low, median, median + high}
}

// ColumnOutliers describes the outliers of a column, the values outside the column's bounds.
type ColumnOutliers struct {
	ColumnIndex   int // index of the column; the target is last
	OutlierCount  int
	WorstOutlier  float64 // outlier with the largest distance from the bounds
	LowestInlier  float64 // smallest value that is not an outlier
	HighestInlier float64 // largest value that is not an outlier
	bounds        OutlierBounds
	worstDistance float64
}

// FindOutliers returns the columns of s that have outliers. It reads all rows.
func FindOutliers[T Float](s *Samples[T]) []ColumnOutliers {
	bounds := FindOutlierBounds(s)
	found := make([]ColumnOutliers, len(bounds))
	for j := range found {
		found[j] = ColumnOutliers{ColumnIndex: j, LowestInlier: math.Inf(1), HighestInlier: math.Inf(-1),
			bounds: bounds[j]}
	}
	all := s.All()
	for from := 0; from < s.Len(); from += rowBlockSize {
		block := all.rowBlock(from)
		for i, y := range block.Y {
			for j, v := range block.X[i*s.featureCount:][:s.featureCount] {
				found[j].addValue(float64(v))
			}
			found[s.featureCount].addValue(float64(y))
		}
	}
	return slices.DeleteFunc(found, func(o ColumnOutliers) bool { return o.OutlierCount == 0 })
}

func (o *ColumnOutliers) addValue(v float64) {
	if !o.bounds.IsOutlier(v) {
		o.LowestInlier, o.HighestInlier = min(o.LowestInlier, v), max(o.HighestInlier, v)
		return
	}
	o.OutlierCount++
	if d := max(o.bounds.Low-v, v-o.bounds.High); d > o.worstDistance {
		o.worstDistance, o.WorstOutlier = d, v
	}
}

// RobustColumnMoments returns the moments of all rows of s after each outlier has been replaced by the median of its
// column. Without this replacement, two readings of −9999 among 1,500 readings of 0.5 would determine the scale.
func RobustColumnMoments[T Float](s *Samples[T]) *ColumnMoments {
	bounds := FindOutlierBounds(s)
	m := newColumnMoments(s.FeatureCount())
	all := s.All()
	row := make([]float64, s.FeatureCount())
	for from := 0; from < s.Len(); from += rowBlockSize {
		block := all.rowBlock(from)
		for i, y := range block.Y {
			for j, v := range block.X[i*s.featureCount:][:s.featureCount] {
				row[j] = bounds[j].medianIfOutlier(float64(v))
			}
			addRowToColumnMoments(m, row, bounds[s.featureCount].medianIfOutlier(float64(y)))
		}
	}
	return m
}
