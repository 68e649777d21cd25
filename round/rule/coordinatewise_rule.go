package rule

import (
	"sort"

	"github.com/fedmesh/fedmesh/wire"
)

// columnBlockElements is about how many elements of a set are in memory at a time where a rule reads it by columns.
const columnBlockElements = 1 << 20

// forEachColumnBlock calls take with blocks of n columns of all updates from column from on, and with the first one's
// number.
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

// coordinatewiseRule is what those rules have in common that make each coordinate of D of the values of that
// coordinate, each as often as its agent was drawn. Weights play no part.
type coordinatewiseRule[T wire.Float] struct {
	// checkDrawCount refuses a set of n draws, and combineValues makes one number of its n values, in order.
	checkDrawCount func(n int) error
	combineValues  func(sorted []float64) float64
}

func (coordinatewiseRule[T]) PassCount() int             { return 2 }
func (coordinatewiseRule[T]) StateVectorNames() []string { return nil }

// AssessUpdates implements Rule. It reads nothing.
func (r coordinatewiseRule[T]) AssessUpdates(s *UpdateSet[T]) (UpdateAssessment, error) {
	return UpdateAssessment{}, r.checkDrawCount(s.TotalDrawCount())
}

// AggregatePart implements Rule, in blocks of columns that hold a million elements together.
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
