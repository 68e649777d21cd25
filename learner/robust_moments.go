package learner

import (
	"cmp"
	"math"
	"slices"
)

const (
	// maxBoundsRows is the maximum number of rows, spread evenly over the samples, from which the median and the median
	// absolute deviation (MAD) of a column are computed.
	maxBoundsRows = 4096
	// outlierMADFactor is the distance from the median beyond which a value is an outlier. Its unit is 1.4826 times the
	// median absolute deviation (MAD), which is the standard deviation for normally distributed values.
	outlierMADFactor = 20
	// sigmaPerMAD is the ratio of the standard deviation to the median absolute deviation (MAD) for normally
	// distributed values.
	sigmaPerMAD = 1.4826

	// Outliers must be rare. Values outside the bounds are not outliers if their share exceeds maxOutlierShare, or if
	// it exceeds maxDistinctOutlierShare with more than maxDistinctOutliers distinct values. An appliance that is on at
	// times has such values.
	maxOutlierShare, maxDistinctOutlierShare = 0.1, 0.005
	maxDistinctOutliers                      = 8

	// The following constants apply to columns in which more than half of the values are equal.

	// isolatedOutlierFactor is the multiple of the largest distance of the other values from the median beyond which a
	// value is an outlier. Rain of 60 mm is 22 times as far from 0 as rain of 2.8 mm, and should not be an outlier.
	isolatedOutlierFactor = 30
	// oppositeSideOutlierFactor replaces isolatedOutlierFactor if all other values lie on the other side of the median.
	// −9999 is 10 times as far from 0 as a solar radiation of 1,000 W/m², and should be an outlier.
	oppositeSideOutlierFactor = 5
	// minBoundSteps is the multiple of the smallest distance up to which a value is not an outlier. Rain of 60 mm is
	// 600 steps of a gauge with steps of 0.1 mm. In a column of 0 and 1, 999 should be an outlier.
	minBoundSteps = 750
)

// sentinels are common codes for a missing value. They are outliers even if they are more than 10 % of all values of a
// column.
var sentinels = []float64{-999, -9999, 9999, -99999, 99999, -999999, 999999, math.MinInt16, math.MaxInt16,
	// 1 << 31 and 1 << 32 are the float32 values nearest to math.MaxInt32 and math.MaxUint32.
	math.MaxUint16, math.MinInt32, math.MaxInt32, 1 << 31, math.MaxUint32, 1 << 32}

// OutlierBounds is the interval [median − 20·1.4826·MAD, median + 20·1.4826·MAD] of a column. Values outside are
// outliers, unless they are more than 10 % of all values and not only sentinels such as −9999, or more than 0.5 % with
// more than 8 distinct values. In these cases the interval is unbounded: a power of 2,000 W beside a standby of 0.5 W
// is valid.
//
// If more than half of the values are equal, as in a column of rain or of 0 and 1, the MAD is 0. The bounds then follow
// from the distances of the other distinct values from the median. On each side, the bound is 30 times the largest
// distance, or 5 times if all these values lie on the other side, but at least 750 times the smallest distance. The
// values are added in the order of their distances. The first value outside the bounds of the previous ones ends the
// list. At most (n − 1)/10 of n values, rounded up, can be left out. So a rare event is no outlier if other events have
// a similar size, or if there are no others.
//
// If all values of a column are equal, the interval is unbounded.
type OutlierBounds struct{ Low, Median, High float64 }

// IsOutlier reports whether v lies outside the bounds.
func (b OutlierBounds) IsOutlier(v float64) bool { return v < b.Low || v > b.High }

// medianIfOutlier returns v, or the median of the column if v is an outlier.
func (b OutlierBounds) medianIfOutlier(v float64) float64 {
	if b.IsOutlier(v) {
		return b.Median
	}
	return v
}

// FindOutlierBounds returns the bounds of each column of s, the features and then the target, from at most 4096 rows
// spread evenly over s.
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

// outlierBoundsOf returns the bounds of a column with the given values, which it reorders.
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

// outlierBoundsWithoutMAD returns the bounds of a column whose MAD is 0, from its sorted values. It modifies the
// values.
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

// boundsFromDeviatingValues returns the bounds that follow from values other than the median. The values must be sorted
// by their distance from the median and contain no outliers.
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

// ColumnOutliers describes the values of a column that lie outside its bounds.
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

// RobustColumnMoments returns the moments of all rows of s after each outlier is replaced by the median of its column.
// Otherwise two readings of −9999 among 1,500 of 0.5 would determine the scale.
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
