package data

import "sort"

// RowTimes contains the times of rows in ascending order, in nanoseconds since 1970.
type RowTimes struct {
	rowCount      int
	timesInMemory []int64                     // all times; nil if readTimes is set
	readTimes     func(dst []int64, from int) // fills dst with the times of the rows that start at from
}

// NewRowTimes returns times that are stored in memory.
func NewRowTimes(all []int64) *RowTimes { return &RowTimes{rowCount: len(all), timesInMemory: all} }

// NewStoredRowTimes returns the times of n rows. read fills dst with the times of the rows that start at from. It uses
// 0 for times that cannot be read.
func NewStoredRowTimes(n int, read func(dst []int64, from int)) *RowTimes {
	return &RowTimes{rowCount: n, readTimes: read}
}

// Len returns the number of rows.
func (t *RowTimes) Len() int { return t.rowCount }

// At returns the time of row i. It returns 0 if the time cannot be read; RowSnapshot.Err then returns the error.
func (t *RowTimes) At(i int) int64 {
	var at [1]int64
	t.CopyTo(at[:], i)
	return at[0]
}

// FirstRowSince returns the index of the first row with a time of at least at, or Len if no such row exists.
func (t *RowTimes) FirstRowSince(at int64) int {
	return sort.Search(t.rowCount, func(i int) bool { return t.At(i) >= at })
}

// CopyTo fills dst with the times of the rows that start at from.
func (t *RowTimes) CopyTo(dst []int64, from int) {
	if t.readTimes == nil {
		copy(dst, t.timesInMemory[from:])
		return
	}
	t.readTimes(dst, from)
}

// HasTime reports whether a row has exactly the time at.
func (t *RowTimes) HasTime(at int64) bool {
	i := t.FirstRowSince(at)
	return i < t.rowCount && t.At(i) == at
}
