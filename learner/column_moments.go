package learner

import "fmt"

// minRelativeVariance is the square of 2⁻²³, the relative precision of float32. A column whose variance is at most
// minRelativeVariance times its squared mean is treated as constant, since float32 rows cannot show a smaller spread.
const minRelativeVariance = 1.0 / (1 << 46)

// ColumnMoments contains the number of rows and, for each column, the mean and the sum of squared deviations from the
// mean. The columns are the features, followed by the target. A device reveals only these values for computing the
// common standardisation. Unlike sums of squares, squared deviations remain precise if the mean is far from 0.
type ColumnMoments struct {
	RowCount          float64
	Mean              []float64
	SquaredDeviations []float64
}

// newColumnMoments returns the moments of zero rows, for the given number of features and one target.
func newColumnMoments(features int) *ColumnMoments {
	return &ColumnMoments{Mean: make([]float64, features+1), SquaredDeviations: make([]float64, features+1)}
}

// ComputeColumnMoments returns the moments of all rows of s.
func ComputeColumnMoments[T Float](s *Samples[T]) *ColumnMoments {
	m := newColumnMoments(s.FeatureCount())
	all := s.All()
	for from := 0; from < s.Len(); from += rowBlockSize {
		block := all.rowBlock(from)
		for i, y := range block.Y {
			addRowToColumnMoments(m, block.X[i*s.featureCount:][:s.featureCount], y)
		}
	}
	return m
}

func addRowToColumnMoments[T Float](m *ColumnMoments, x []T, y T) {
	m.RowCount++
	for j, v := range x {
		m.addValue(j, float64(v))
	}
	m.addValue(len(x), float64(y))
}

// addValue adds a value to the moments of a column by Welford's algorithm. For a constant column, the sum of squared
// deviations remains exactly 0.
func (m *ColumnMoments) addValue(column int, v float64) {
	d := v - m.Mean[column]
	m.Mean[column] += d / m.RowCount
	m.SquaredDeviations[column] += float64(d * (v - m.Mean[column]))
}

// mergeColumn adds the moments of further rows to a column (Chan, Golub and LeVeque 1979). The further rows are
// described by their number, mean and sum of squared deviations. The parameter before is the number of rows so far.
func (m *ColumnMoments) mergeColumn(column int, before, rows, mean, squares float64) {
	d := mean - m.Mean[column]
	m.Mean[column] += d * (rows / (before + rows))
	m.SquaredDeviations[column] += squares + float64(d*d)*(before*(rows/(before+rows)))
}

// IsConstantColumn reports whether the spread of a column is so small that float32 cannot represent it.
func (m *ColumnMoments) IsConstantColumn(column int) bool {
	return m.SquaredDeviations[column]/m.RowCount <= minRelativeVariance*m.Mean[column]*m.Mean[column]
}

// Vector returns the moments of n rows and m columns as one flat vector, [n, mean_1 … mean_m, squares_1 … squares_m].
func (m *ColumnMoments) Vector() []float64 {
	v := append(make([]float64, 0, 1+2*len(m.Mean)), m.RowCount)
	v = append(v, m.Mean...)
	return append(v, m.SquaredDeviations...)
}

// ColumnMomentsFromVector decodes the output of [ColumnMoments.Vector] and copies v. It returns an error for an invalid
// vector: a length other than 1+2m for m ≥ 2 columns, a value that is not finite, a number of rows n < 1, or a negative
// sum of squares.
func ColumnMomentsFromVector(v []float64) (*ColumnMoments, error) {
	columns := (len(v) - 1) / 2
	if columns < 2 || len(v) != 1+2*columns {
		return nil, fmt.Errorf("moments: vector has length %d, but must have length 1+2m for m ≥ 2 columns", len(v))
	}
	for i, x := range v {
		if !isFinite(x) {
			return nil, fmt.Errorf("moments: element %d is %v, but must be a finite number", i, x)
		}
	}
	m := newColumnMoments(columns - 1)
	m.RowCount = v[0]
	copy(m.Mean, v[1:])
	copy(m.SquaredDeviations, v[1+columns:])
	if m.RowCount < 1 {
		return nil, fmt.Errorf("moments: the number of rows is %v, but must be at least 1", m.RowCount)
	}
	for j, q := range m.SquaredDeviations {
		if q < 0 {
			return nil, fmt.Errorf("moments: column %d has the sum of squared deviations %v, but must not be negative",
				j,
				q)
		}
	}
	return m, nil
}
