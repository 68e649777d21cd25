package data

import "github.com/fedmesh/fedmesh/data/grid"

// Reading is a value of an input at a time, of a source whose rows are made of readings.
type Reading = grid.Reading

// Reason is why a reading, or a value of a row, is not used; package grid has them all.
type Reason = grid.Reason

// feed is readings in the order in which they came. Its methods are called from one goroutine at a time, but for
// Report, which tells what came of the inputs that are wanted before they were readings, and what keeps them from
// coming.
type feed interface {
	Reporter
	// where names the place of a reading of an input: a file and a line, if it has one, or a topic.
	where(input string, line int64) string
	// changed reports whether read would pass anything on. It is cheap, and may say so where nothing has come.
	changed() bool
	// read passes on the readings that have come since the last call. One without an input tells the time of a line:
	// take reports whether that time counts, or is ahead of those that follow. If those passed on before are void, it
	// calls void with the reason before it begins. Readings that were passed on before an error count: the next call
	// goes on behind them, or calls void.
	read(void func(why string), take func(Reading) (counts bool)) error
	// rewind has the next read pass on all readings that there are, after it has called void with the reason.
	rewind(why string)
}
