package rule

import (
	"sort"

	"github.com/fedmesh/fedmesh/wire"
)

// columnBlockElements is the approximate number of elements that a rule keeps in memory when it reads updates by
// columns (the values of one coordinate in all updates).
const columnBlockElements = 1 << 20

// forEachColumnBlock calls take with successive blocks of columns of all updates. Together the blocks cover n columns,
// starting at column from. The parameter at of take is the first column of a block.
func forEachColumnBlock[T wire.Float](s *UpdateSet[T], from, n int, take func(at int, rows [][]T)) error {
	width := min(max(columnBlockElements/max(len(s.Updates), 1), 64), n)
	rows := make([][]T, len(s.Updates))
	for k := range rows {
		rows[k] = make([]T, width)
	}
	for at := from; at < from+n; at += width {
		for k := range rows {
			rows[k] = rows[k][:min(width, from+n-at)]
		}
		if err := s.ReadColumns(at, rows); err != nil {
			return err
		}
		take(at, rows)
	}
	return nil
}

// coordinatewiseRule implements the rules that compute each coordinate of the result from the same coordinate of all
// updates. An update counts as many times as its agent was drawn, and weights of agents have no effect.
type coordinatewiseRule[T wire.Float] struct {
	// checkDrawCount returns an error if n draws are too few for the rule. combineValues combines the n sorted values
	// of one coordinate into the coordinate of the result.
	checkDrawCount func(n int) error
	combineValues  func(sorted []float64) float64
}

func (coordinatewiseRule[T]) PassCount() int             { return 2 }
func (coordinatewiseRule[T]) StateVectorNames() []string { return nil }

// AssessUpdates implements Rule. It does not read the elements of the updates.
func (r coordinatewiseRule[T]) AssessUpdates(s *UpdateSet[T]) (UpdateAssessment, error) {
	return UpdateAssessment{}, r.checkDrawCount(s.TotalDrawCount())
}

// AggregatePart implements Rule. It reads blocks of columns with about a million elements.
func (r coordinatewiseRule[T]) AggregatePart(dst []float64, s *UpdateSet[T], from int) error {
	values := make([]float64, 0, s.TotalDrawCount())
	return forEachColumnBlock(s, from, len(dst), func(at int, rows [][]T) {
		for j := range rows[0] {
			values = values[:0]
			for k := range s.Updates {
				u := &s.Updates[k]
				x := float64(u.clipFactor() * float64(rows[k][j]))
				for range u.DrawCount {
					values = append(values, x)
				}
			}
			sort.Float64s(values)
			dst[at-from+j] = float64(s.UpdateScale * r.combineValues(values))
		}
	})
}
