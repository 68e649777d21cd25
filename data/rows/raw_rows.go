package rows

import (
	"slices"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
)

// RawRows contains rows before they are prepared for a task. Rows are only appended. A small number of rows is stored
// in memory, a larger number in a file. Snapshots share the rows, so the rows of a snapshot are never modified.
type RawRows struct {
	StorageSettings
	FeatureCount        int
	HasTimes            bool
	keepsOnlyNewestRows bool // whether only the newest rows are kept, in memory

	x, y            []float32
	times           []int64
	droppedRowCount int      // number of old rows dropped because of keepsOnlyNewestRows
	File            *RowFile // file with the rows; nil while they are in memory
}

// Len returns the number of rows added, including dropped rows.
func (r *RawRows) Len() int {
	if r.File != nil {
		return r.File.len()
	}
	return r.droppedRowCount + len(r.y)
}

// Add appends rows. If it returns an error, some of the rows may have been added; the caller must then remove them with
// Truncate.
func (r *RawRows) Add(x, y []float32, times []int64) error {
	if r.File == nil && 4*(len(r.x)+len(x)+len(r.y)+len(y))+8*(len(r.times)+len(times)) > r.MaxMemoryBytes {
		if r.keepsOnlyNewestRows {
			r.dropOlderHalf()
		} else if err := r.moveToFile(); err != nil {
			return err
		}
	}
	if r.File != nil {
		return r.File.addRows(x, y, times)
	}
	r.x, r.y, r.times = append(r.x, x...), append(r.y, y...), append(r.times, times...)
	return nil
}

// dropOlderHalf drops the older half of the rows in memory.
func (r *RawRows) dropOlderHalf() {
	n := len(r.y) / 2
	r.droppedRowCount += n
	r.x = append([]float32(nil), r.x[n*r.FeatureCount:]...)
	r.y = append([]float32(nil), r.y[n:]...)
	r.times = append([]int64(nil), r.times[min(n, len(r.times)):]...)
}

// moveToFile moves the rows from memory to a file.
func (r *RawRows) moveToFile() error {
	f, err := newRowFile(r.Folder, r.FeatureCount, r.HasTimes)
	if err != nil {
		return err
	}
	if err = f.addRows(r.x, r.y, r.times); err == nil {
		err = f.flush()
	}
	if err != nil {
		_ = f.File.Close() // ignore the error, because no snapshot uses the file yet
		return err
	}
	r.File, r.x, r.y, r.times = f, nil, nil, nil
	return nil
}

// Flush writes buffered rows to the file, so that snapshots can read them.
func (r *RawRows) Flush() error {
	if r.File == nil {
		return nil
	}
	return r.File.flush()
}

// Truncate removes all rows from index n on. No snapshot may contain these rows.
func (r *RawRows) Truncate(n int) {
	switch {
	case r.File != nil && n == 0:
		_ = r.File.File.Close()
		r.File = nil
	case r.File != nil:
		r.File.truncate(n)
	default:
		n -= r.droppedRowCount
		r.x, r.y, r.times = r.x[:n*r.FeatureCount], r.y[:n], r.times[:min(n, len(r.times))]
	}
}

// firstSamples returns the first n rows before preparation, without rows that were dropped.
func (r *RawRows) firstSamples(n int) *learner.Samples[float32] {
	if r.File != nil {
		return learner.NewTableSamples(r.FeatureCount, n, learner.StoredTable[float32](&preparedRowFile{file: r.File}))
	}
	n -= r.droppedRowCount
	return learner.NewSamples(r.FeatureCount, r.x[:n*r.FeatureCount], r.y[:n])
}

// firstRowTimes returns the times of the first n rows, without rows that were dropped. It returns nil if rows have no
// time.
func (r *RawRows) firstRowTimes(n int) *data.RowTimes {
	switch {
	case !r.HasTimes:
		return nil
	case r.File != nil:
		f := r.File
		return data.NewStoredRowTimes(n, func(dst []int64, from int) { f.readRows(nil, nil, dst, from) })
	}
	return data.NewRowTimes(r.times[:n-r.droppedRowCount])
}

// Err returns the first error that occurred while reading rows from the file.
func (r *RawRows) Err() error {
	if r.File == nil {
		return nil
	}
	return r.File.err()
}

// preparedRowFile reads rows from a file and prepares them for a task.
type preparedRowFile struct {
	file     *RowFile
	preparer data.RowPreparer // prepares the rows for a task; nil means no preparation
}

// ReadRows implements learner.StoredTable.
func (t *preparedRowFile) ReadRows(x, y []float32, from int) {
	if t.file.readRows(x, y, nil, from) && t.preparer != nil {
		t.preparer.PrepareRowsAgain(x, y)
	}
}

// StartsWith reports whether the first n rows of r and o are equal.
func (r *RawRows) StartsWith(o *RawRows, n int) bool {
	if r.HasTimes != o.HasTimes || r.Len() < n {
		return false
	}
	const step = 1024
	mine, others := r.firstSamples(n).All(), o.firstSamples(n).All()
	a, b := r.firstRowTimes(n), o.firstRowTimes(n)
	at, bt := make([]int64, step), make([]int64, step)
	for from := 0; from < n; from += step {
		p, q := mine.RowRange(from, step), others.RowRange(from, step)
		if r.HasTimes {
			k := min(step, n-from)
			a.CopyTo(at[:k], from)
			b.CopyTo(bt[:k], from)
		}
		if !slices.Equal(p.X, q.X) || !slices.Equal(p.Y, q.Y) || !slices.Equal(at, bt) {
			return false
		}
	}
	return true
}
