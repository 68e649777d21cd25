package data

import "sort"

// RowTimes are when rows were taken, ascending, in nanoseconds since 1970.
type RowTimes struct {
	n        int
	inMemory []int64  // or
	rowFile  *rowFile // its first n rows
}

// NewTimes are times in memory.
func NewTimes(all []int64) *RowTimes { return &RowTimes{n: len(all), inMemory: all} }

// Len is how many there are.
func (t *RowTimes) Len() int { return t.n }

// At is the time of row i; 0 if it cannot be read, which View.Err tells.
func (t *RowTimes) At(i int) int64 {
	if t.rowFile == nil {
		return t.inMemory[i]
	}
	var at [1]int64
	t.rowFile.read(nil, nil, at[:], i)
	return at[0]
}

// Find returns the first row that was not taken before a time; Len if there is none.
func (t *RowTimes) Find(at int64) int {
	return sort.Search(t.n, func(i int) bool { return t.At(i) >= at })
}

// copyTo copies the times of rows from one on.
func (t *RowTimes) copyTo(dst []int64, from int) {
	if t.rowFile == nil {
		copy(dst, t.inMemory[from:])
		return
	}
	t.rowFile.read(nil, nil, dst, from)
}

// Has reports whether a row was taken at the given time.
func (t *RowTimes) Has(at int64) bool {
	i := t.Find(at)
	return i < t.n && t.At(i) == at
}
