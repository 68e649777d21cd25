package learner

import "fmt"

// rounding is the relative error allowed between a sum of squares and the square of a sum, each of up to about 10⁸
// rounded additions in any order. A column whose mean is over 30,000 times its spread counts as constant.
const rounding = 1e-9

// Moments holds the count, sums and sums of squares of m columns, the features and then the target. It is all that a
// device reveals for a standardisation common to all devices; moments of disjoint data add up.
type Moments struct {
	Rows       float64 // a sum of counts like the others
	Sum        []float64
	SumSquares []float64
}

// newMoments is the moments of no rows of that many features and a target.
func newMoments(features int) *Moments {
	return &Moments{Sum: make([]float64, features+1), SumSquares: make([]float64, features+1)}
}

// MomentsOf is the moments of all rows of s.
func MomentsOf[T Float](s *Samples[T]) *Moments {
	m := newMoments(s.Inputs())
	all := s.All()
	for from := 0; from < s.Len(); from += blockRows {
		block := all.block(from)
		for i, y := range block.Y {
			addRow(m, block.X[i*s.inputs:][:s.inputs], y)
		}
	}
	return m
}

// addRow adds one sample.
func addRow[T Float](m *Moments, x []T, y T) {
	m.Rows++
	for j, v := range x {
		m.add(j, float64(v))
	}
	m.add(len(x), float64(y))
}

func (m *Moments) add(column int, v float64) {
	m.Sum[column] += v
	m.SumSquares[column] += float64(v * v)
}

// Vector is the moments as one flat vector, [n, s_1 … s_m, q_1 … q_m].
func (m *Moments) Vector() []float64 {
	v := append(make([]float64, 0, 1+2*len(m.Sum)), m.Rows)
	v = append(v, m.Sum...)
	return append(v, m.SumSquares...)
}

// MomentsFromVector reads what [Moments.Vector] wrote, and refuses what no data can have: a length that is not 1+2m
// with m ≥ 2, a value that is not finite, n < 1, or q_j·n < s_j² beyond rounding. It copies v.
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
	copy(m.Sum, v[1:])
	copy(m.SumSquares, v[1+columns:])
	if m.Rows < 1 {
		return nil, fmt.Errorf("moments: %v rows; at least 1", m.Rows)
	}
	for j, s := range m.Sum {
		// Divided by n² on both sides, so that no square of a finite sum overflows before its mean does.
		if mean := s / m.Rows; m.SumSquares[j]/m.Rows < mean*mean*(1-rounding) {
			return nil,
				fmt.Errorf("moments: column %d has sum %v and sum of squares %v over %v rows: no data has these",
					j, s, m.SumSquares[j], m.Rows)
		}
	}
	return m, nil
}
