package rule

import (
	"sort"

	"github.com/fedmesh/fedmesh/wire"
)

// blockElements is about how many elements of a set are in memory at a time where a rule reads it by columns.
const blockElements = 1 << 20

// blocks calls take with blocks of n columns of all updates from column from on, and with the first one's number.
func blocks[T wire.Float](s *Set[T], from, n int, take func(at int, rows [][]T)) error {
	width := min(max(blockElements/max(len(s.Shares), 1), 64), n)
	rows := make([][]T, len(s.Shares))
	for k := range rows {
		rows[k] = make([]T, width)
	}
	for at := from; at < from+n; at += width {
		for k := range rows {
			rows[k] = rows[k][:min(width, from+n-at)]
		}
		if err := s.Columns(at, rows); err != nil {
			return err
		}
		take(at, rows)
	}
	return nil
}

// byCoordinate is what those rules have in common that make each coordinate of D of the values of that coordinate, each
// as often as its agent was drawn. Weights play no part.
type byCoordinate[T wire.Float] struct {
	// check refuses a set of n draws, and of makes one number of its n values, in order.
	check func(n int) error
	of    func(sorted []float64) float64
}

func (byCoordinate[T]) Passes() int     { return 2 }
func (byCoordinate[T]) State() []string { return nil }

// Weigh implements Rule. It reads nothing.
func (r byCoordinate[T]) Weigh(s *Set[T]) (Weighed, error) { return Weighed{}, r.check(s.Draws()) }

// Fold implements Rule, in blocks of columns that hold a million elements together.
func (r byCoordinate[T]) Fold(dst []float64, s *Set[T], from int) error {
	values := make([]float64, 0, s.Draws())
	return blocks(s, from, len(dst), func(at int, rows [][]T) {
		for j := range rows[0] {
			values = values[:0]
			for k := range s.Shares {
				u := &s.Shares[k]
				x := float64(u.part() * float64(rows[k][j]))
				for range u.Times {
					values = append(values, x)
				}
			}
			sort.Float64s(values)
			dst[at-from+j] = float64(s.Scale * r.of(values))
		}
	})
}
