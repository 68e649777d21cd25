package rows

import "github.com/fedmesh/fedmesh/data"

// ReadingFeed passes on readings in the order in which they arrived. Its methods are called from one goroutine at a
// time, except Report, which counts the values that were received or rejected and names what keeps readings from
// arriving.
type ReadingFeed interface {
	data.QualityReporter
	// DescribeReadingPlace returns the place of a reading of an input: a file and a line if the reading has a line,
	// otherwise a topic.
	DescribeReadingPlace(input string, line int64) string
	// Changed reports whether Read would pass anything on. It is cheap, and may return true although nothing has
	// arrived.
	Changed() bool
	// Read calls take for each reading that has arrived since the last call. A reading without an input contains only
	// the time of a line; take returns false if this time is an outlier. Read may call restart with a reason at any
	// time, also after some readings: all readings that the feed has passed on are then void, and it passes them on
	// again from the first one. After an error, the readings passed to take remain valid: the next call continues after
	// them, or calls restart.
	Read(restart func(why string), take func(data.Reading) (inOrder bool)) error
	// Rewind has the next Read call restart with the reason.
	Rewind(why string)
}
