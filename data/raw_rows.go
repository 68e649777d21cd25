package data

import (
	"slices"

	"github.com/fedmesh/fedmesh/learner"
)

// maxRowMemory is how much memory the rows of a task may take as they were made, in bytes; more go to a file. The
// copy in the task's terms takes as much memory again.
const maxRowMemory = 8 << 20

// rowStorage is where rows may be.
type rowStorage struct {
	folder string // of files; empty = that of temporary ones
	memory int    // the most bytes in memory
}

// rawRows is rows as they were made, which only grow: in memory while they are few, else in a file. Views share them,
// and nothing that a view has is changed.
type rawRows struct {
	rowStorage
	features int
	timed    bool
	keepTail bool // only the newest rows are kept, in memory

	x, y          []float32
	times         []int64
	droppedBefore int      // number of older rows, with keepTail
	file          *rowFile // in place of memory
}

// len is how many rows were added.
func (r *rawRows) len() int {
	if r.file != nil {
		return r.file.len()
	}
	return r.droppedBefore + len(r.y)
}

// add appends rows. After an error some of them may have been added: the caller takes them back with cut.
func (r *rawRows) add(x, y []float32, times []int64) error {
	if r.file == nil && 4*(len(r.x)+len(x)+len(r.y)+len(y))+8*(len(r.times)+len(times)) > r.memory {
		if r.keepTail {
			r.dropOlderHalf()
		} else if err := r.move(); err != nil {
			return err
		}
	}
	if r.file != nil {
		return r.file.add(x, y, times)
	}
	r.x, r.y, r.times = append(r.x, x...), append(r.y, y...), append(r.times, times...)
	return nil
}

// dropOlderHalf drops the older half.
func (r *rawRows) dropOlderHalf() {
	n := len(r.y) / 2
	r.droppedBefore += n
	r.x = append([]float32(nil), r.x[n*r.features:]...)
	r.y = append([]float32(nil), r.y[n:]...)
	r.times = append([]int64(nil), r.times[min(n, len(r.times)):]...)
}

// move moves the rows to a file.
func (r *rawRows) move() error {
	f, err := newRowFile(r.folder, r.features, r.timed)
	if err != nil {
		return err
	}
	if err = f.add(r.x, r.y, r.times); err == nil {
		err = f.flush()
	}
	if err != nil {
		_ = f.file.Close() // no view has it
		return err
	}
	r.file, r.x, r.y, r.times = f, nil, nil, nil
	return nil
}

// flush makes views of all rows possible.
func (r *rawRows) flush() error {
	if r.file == nil {
		return nil
	}
	return r.file.flush()
}

// truncate takes back the rows from one on, which no view has.
func (r *rawRows) truncate(n int) {
	switch {
	case r.file != nil && n == 0:
		_ = r.file.file.Close()
		r.file = nil
	case r.file != nil:
		r.file.truncate(n)
	default:
		n -= r.droppedBefore
		r.x, r.y, r.times = r.x[:n*r.features], r.y[:n], r.times[:min(n, len(r.times))]
	}
}

// samples are the first n rows as they are; of recent ones, those that are left.
func (r *rawRows) samples(n int) *learner.Samples[float32] {
	if r.file != nil {
		return learner.NewTableSamples(r.features, n, learner.StoredTable[float32](&fileTable{file: r.file}))
	}
	n -= r.droppedBefore
	return learner.NewSamples(r.features, r.x[:n*r.features], r.y[:n])
}

// takenAt are the times of the same rows; nil if they have none.
func (r *rawRows) takenAt(n int) *RowTimes {
	switch {
	case !r.timed:
		return nil
	case r.file != nil:
		return &RowTimes{n: n, rowFile: r.file}
	}
	return NewTimes(r.times[:n-r.droppedBefore])
}

// err is why rows could not be read.
func (r *rawRows) err() error {
	if r.file == nil {
		return nil
	}
	return r.file.err()
}

// fileTable is the rows of a file in a task's terms.
type fileTable struct {
	file     *rowFile
	preparer Preparer // nil = as they are
}

// ReadRows implements learner.StoredTable.
func (t *fileTable) ReadRows(x, y []float32, from int) {
	if t.file.read(x, y, nil, from) && t.preparer != nil {
		t.preparer.PrepareAgain(x, y)
	}
}

// startsWith reports whether rows begin with the first n of others.
func (r *rawRows) startsWith(o *rawRows, n int) bool {
	if r.timed != o.timed || r.len() < n {
		return false
	}
	const step = 1024
	mine, others := r.samples(n).All(), o.samples(n).All()
	a, b := r.takenAt(n), o.takenAt(n)
	at, bt := make([]int64, step), make([]int64, step)
	for from := 0; from < n; from += step {
		p, q := mine.RowRange(from, step), others.RowRange(from, step)
		if r.timed {
			k := min(step, n-from)
			a.copyTo(at[:k], from)
			b.copyTo(bt[:k], from)
		}
		if !slices.Equal(p.X, q.X) || !slices.Equal(p.Y, q.Y) || !slices.Equal(at, bt) {
			return false
		}
	}
	return true
}
