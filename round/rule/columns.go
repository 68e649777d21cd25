package rule

import "github.com/fedmesh/fedmesh/wire"

// blockElements is about how many elements of a set are in memory at a time where a rule reads it by columns.
const blockElements = 1 << 20

// columns calls take for each of d coordinates, with a function that returns it of update k. It reads blocks of columns
// of the n updates.
func columns[T wire.Float](s Source[T], n, d int, take func(j int, column func(k int) T)) error {
	width := min(max(blockElements/max(n, 1), 64), d)
	rows := make([][]T, n)
	for k := range rows {
		rows[k] = make([]T, width)
	}
	for from := 0; from < d; from += width {
		for k := range rows {
			rows[k] = rows[k][:min(width, d-from)]
		}
		if err := s.Columns(from, rows); err != nil {
			return err
		}
		for j := range min(width, d-from) {
			take(from+j, func(k int) T { return rows[k][j] })
		}
	}
	return nil
}
