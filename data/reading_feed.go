package data

import "github.com/fedmesh/fedmesh/data/grid"

// Reading is a value of an input at a time, of a source whose rows are made of readings.
type Reading = grid.Reading

// Reason is why a reading, or a value of a row, is not used; package grid has them all.
type Reason = grid.Reason

// readingFeed is readings in the order in which they came. Its methods are called from one goroutine at a time, but for
// Report, which tells what came of the inputs that are wanted before they were readings, and what keeps them from
// coming.
type readingFeed interface {
	Reporter
	// where names the place of a reading of an input: a file and a line, if it has one, or a topic.
	where(input string, line int64) string
	// changed reports whether read would pass anything on. It is cheap, and may say so where nothing has come.
	changed() bool
	// read calls take for each reading that has arrived since the last call. A reading without an input contains only
	// the time of a line; take returns false if this time is an outlier. If earlier readings have become invalid, read
	// calls void with the reason before the first take. After an error, the readings passed to take remain valid: the
	// next call continues after them, or calls void.
	read(void func(why string), take func(Reading) (inOrder bool)) error
	// rewind has the next read pass on all readings that there are, after it has called void with the reason.
	rewind(why string)
}
