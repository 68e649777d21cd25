package rows

import "github.com/fedmesh/fedmesh/data"

// ReadingFeed passes on readings in the order of arrival. Except for QualityReport, its methods must be called from one
// goroutine at a time.
type ReadingFeed interface {
	data.QualityReporter
	// DescribeReadingPlace returns the place of a reading: the file and line if it has a line, otherwise the topic of
	// the input.
	DescribeReadingPlace(input string, line int64) string
	// Changed reports whether Read may find new readings. It is cheap and may return true although no reading has
	// arrived.
	Changed() bool
	// Read calls take for each reading that has arrived since the last call. A reading without an input contains only
	// the time of a line; take returns false if this time is an outlier. At any time Read may call restart with a
	// reason: all previous readings are then void, and Read delivers all readings again from the first one. If Read
	// returns an error, the readings passed to take remain valid. The next call continues after them, or calls restart.
	Read(restart func(why string), take func(data.Reading) (inOrder bool)) error
	// Rewind makes the next call of Read deliver all readings again. why is the reason passed to restart.
	Rewind(why string)
}
