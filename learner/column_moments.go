package learner

import "fmt"

// minRelativeVariance is the square of a float32's relative precision, 2⁻²³. A column whose variance is at most this
// share of its squared mean is treated as constant: rows are float32 numbers, and cannot show a smaller spread.
const minRelativeVariance = 1.0 / (1 << 46)

// Moments holds the count of rows, and of m columns, the features and then the target, the mean and the sum of the
// squared deviations from it. It is all that a device reveals for a standardisation common to all devices.
// Deviations keep their precision however far the mean is from 0, which sums of squares do not.
type Moments struct {
	Rows              float64
	Mean              []float64
	SquaredDeviations []float64
}

// newMoments returns the moments of no rows with that many features and a target.
func newMoments(features int) *Moments {
	return &Moments{Mean: make([]float64, features+1), SquaredDeviations: make([]float64, features+1)}
}

// MomentsOf is the moments of all rows of s.
func MomentsOf[T Float](s *Samples[T]) *Moments {
	m := newMoments(s.Inputs())
	all := s.All()
	for from := 0; from < s.Len(); from += rowBlockSize {
		block := all.rowBlock(from)
		for i, y := range block.Y {
			addRowToMoments(m, block.X[i*s.inputs:][:s.inputs], y)
		}
	}
	return m
}

// addRowToMoments adds one sample.
func addRowToMoments[T Float](m *Moments, x []T, y T) {
	m.Rows++
	for j, v := range x {
		m.addValue(j, float64(v))
	}
	m.addValue(len(x), float64(y))
}

// addValue updates a column by Welford's algorithm. It leaves a constant column without any deviation.
func (m *Moments) addValue(column int, v float64) {
	d := v - m.Mean[column]
	m.Mean[column] += d / m.Rows
	m.SquaredDeviations[column] += float64(d * (v - m.Mean[column]))
}

// mergeColumn adds other rows to a column, by their number, mean and sum of squared deviations (Chan, Golub and LeVeque
// 1979). before is the number of rows of the column so far.
func (m *Moments) mergeColumn(column int, before, rows, mean, squares float64) {
	d := mean - m.Mean[column]
	m.Mean[column] += d * (rows / (before + rows))
	m.SquaredDeviations[column] += squares + float64(d*d)*(before*(rows/(before+rows)))
}

// IsConstantColumn reports whether a column has no spread that float32 numbers can show.
func (m *Moments) IsConstantColumn(column int) bool {
	return m.SquaredDeviations[column]/m.Rows <= minRelativeVariance*m.Mean[column]*m.Mean[column]
}

// Vector returns the moments as one flat vector, [n, mean_1 … mean_m, squares_1 … squares_m].
func (m *Moments) Vector() []float64 {
	v := append(make([]float64, 0, 1+2*len(m.Mean)), m.Rows)
	v = append(v, m.Mean...)
	return append(v, m.SquaredDeviations...)
}

// MomentsFromVector reads the output of [Moments.Vector]. It refuses vectors that belong to no data: a length that is
// not 1+2m with m ≥ 2, a value that is not finite, n < 1, or a negative sum of squares. It copies v.
func MomentsFromVector(v []float64) (*Moments, error) {
	columns := (len(v) - 1) / 2
	if columns < 2 || len(v) != 1+2*columns {
		return nil, fmt.Errorf("moments: vector of length %d; it must be 1+2m for m ≥ 2 columns", len(v))
	}
	for i, x := range v {
		if !finite(x) {
			return nil, fmt.Errorf("moments: element %d is %v", i, x)
		}
	}
	m := newMoments(columns - 1)
	m.Rows = v[0]
	copy(m.Mean, v[1:])
	copy(m.SquaredDeviations, v[1+columns:])
	if m.Rows < 1 {
		return nil, fmt.Errorf("moments: %v rows; at least 1", m.Rows)
	}
	for j, q := range m.SquaredDeviations {
		if q < 0 {
			return nil, fmt.Errorf("moments: column %d has the sum of squared deviations %v; it cannot be negative", j,
				q)
		}
	}
	return m, nil
}
