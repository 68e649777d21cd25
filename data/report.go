package data

import "github.com/fedmesh/fedmesh/data/grid"

// Reporter is a Source that tells what came of its readings.
type Reporter interface{ Report() Report }

// Report counts what came and what was not used.
type Report struct {
	Rows, Bad int // rows, and those that could not be used
	Columns   []ColumnReport
	// Troubles are what keeps readings from coming, at this moment; nil if nothing does.
	Troubles []Trouble
}

// ColumnReport is a Report of a column, or of an input.
type ColumnReport struct {
	Name   string
	Used   uint64 // values
	Newest int64  // of their times, in nanoseconds since 1970
	Unused map[Reason]uint64
	Where  string // file and line, or topic, of the last value that was not used
}

// Dropped is the Reason of a reading for which there was no room: too much came at once, or the disk took nothing.
const Dropped Reason = "dropped"

// Reasons are those for which a source does not use a value.
func Reasons() []Reason {
	return []Reason{grid.Missing, grid.Malformed, grid.NotANumber, grid.NotFinite, grid.BadTime, grid.Late, grid.Future,
		Dropped}
}

// Trouble is something that keeps readings from coming.
type Trouble struct {
	Kind TroubleKind
	Text string
}

// TroubleKind is a kind of trouble. It is a metric's label.
type TroubleKind string

// The kinds of trouble.
const (
	Silent  TroubleKind = "silent"  // nothing has come of an input for a while
	Broker  TroubleKind = "broker"  // the site's broker is away, or refuses a topic
	Command TroubleKind = "command" // a command, or a pipe, has ended
	Storage TroubleKind = "storage" // the ring cannot be written, or read
)

// TroubleKinds are all of them.
func TroubleKinds() []TroubleKind { return []TroubleKind{Silent, Broker, Command, Storage} }
