package data

import "sort"

// RowTimes contains the times of rows, ascending, in nanoseconds since 1970.
type RowTimes struct {
	rowCount      int
	timesInMemory []int64                     // or
	readTimes     func(dst []int64, from int) // reads the times of rows, beginning with one
}

// NewRowTimes returns times that are in memory.
func NewRowTimes(all []int64) *RowTimes { return &RowTimes{rowCount: len(all), timesInMemory: all} }

// NewStoredRowTimes returns the times of n rows. read fills dst with the times of the rows that begin with the given
// one, and with 0 where they cannot be read.
func NewStoredRowTimes(n int, read func(dst []int64, from int)) *RowTimes {
	return &RowTimes{rowCount: n, readTimes: read}
}

// Len returns the number of rows.
func (t *RowTimes) Len() int { return t.rowCount }

// At returns the time of row i. It is 0 if it cannot be read; View.Err then returns why.
func (t *RowTimes) At(i int) int64 {
	var at [1]int64
	t.CopyTo(at[:], i)
	return at[0]
}

// FirstRowSince returns the first row that was not taken before a time; Len if there is none.
func (t *RowTimes) FirstRowSince(at int64) int {
	return sort.Search(t.rowCount, func(i int) bool { return t.At(i) >= at })
}

// CopyTo fills dst with the times of the rows that begin with the given one.
func (t *RowTimes) CopyTo(dst []int64, from int) {
	if t.readTimes == nil {
		copy(dst, t.timesInMemory[from:])
		return
	}
	t.readTimes(dst, from)
}

// HasTime reports whether a row was taken at the given time.
func (t *RowTimes) HasTime(at int64) bool {
	i := t.FirstRowSince(at)
	return i < t.rowCount && t.At(i) == at
}
