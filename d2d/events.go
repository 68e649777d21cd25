package d2d

import "github.com/fedmesh/fedmesh/wire"

// Event is Start, Stepped or Tick; Message of an exchange; Wanted, Barred or Stop of a Block; inside the mixer
// received, asked, finished or greeted.
type Event interface{ event() }

// Start begins the block: the parameters are x_0.
type Start struct{}

// Stepped says that the local step asked for by compute is in the parameters.
type Stepped struct{}

// sender tells where a message comes from and whom it is for.
type sender struct {
	ID   wire.AgentID
	Boot wire.Epoch // the start of the sender's program
	For  wire.Epoch // the start of this agent's program that the sender knows; 0 if none
}

// received is a neighbour's snapshot. X becomes the machine's.
type received[T wire.Float] struct {
	From sender
	Seq  uint64 // q on this edge
	X    []T
}

// asked says that a neighbour misses this agent's snapshot q.
type asked struct {
	From sender
	Seq  uint64
}

// finished says how far a neighbour's end of the edge went: it will issue
// nothing after Last, and has applied the flows up to Applied.
type finished struct {
	From          sender
	Last, Applied uint64
	Drained       bool // it needs no answer
}

// greeted says that a neighbour has started, perhaps anew.
type greeted struct{ From sender }

// Tick says that the deadline may have passed.
type Tick struct{}

func (Start) event()       {}
func (Stepped) event()     {}
func (received[T]) event() {}
func (asked) event()       {}
func (finished) event()    {}
func (greeted) event()     {}
func (Tick) event()        {}

// Effect is Publish; Take, Began, Answer or Save of a Block; inside the mixer compute, send, resend, release, ask,
// finish, greet or ended.
type Effect interface{ effect() }

// compute asks for local step Step, from 1, on the parameters.
type compute struct{ Step uint64 }

// to addresses a snapshot on one edge.
type to struct {
	ID   wire.AgentID
	Boot wire.Epoch // 0 while it is not known
	Seq  uint64
}

// send asks the host to publish a snapshot. The host seals it before it steps
// the machine again, and keeps the sealed bytes under the number of the step
// until release.
type send[T wire.Float] struct {
	Step uint64
	X    []T // borrowed
	To   []to
}

// resend asks the host to publish the sealed bytes of a step again.
type resend struct{ Step uint64 }

// release says that the sealed bytes of a step are needed no longer.
type release struct{ Step uint64 }

// ask asks a neighbour for a snapshot that is late.
type ask struct{ To to }

// finish tells a neighbour how far this end of the edge went.
type finish struct {
	To      to // Seq is the last that was issued
	Applied uint64
	Drained bool // it needs no answer
}

// greet tells a neighbour that this agent has started.
type greet struct{ To to }

// ended ends the block: the parameters are x_H. The machine goes on answering
// its neighbours.
type ended struct {
	Stats Stats
	Seen  []wire.Seen
}

func (compute) effect() {}
func (send[T]) effect() {}
func (resend) effect()  {}
func (release) effect() {}
func (ask) effect()     {}
func (finish) effect()  {}
func (greet) effect()   {}
func (ended) effect()   {}

// Stats counts what a mixer did in its block.
type Stats struct {
	Steps   uint64 // local steps
	Flows   uint64 // flows applied
	Late    uint64 // of these, after the step of the snapshot
	Skipped uint64 // pairs of step and edge that issued no snapshot, since the edge was behind
	Waits   uint64 // steps whose wait ended at its deadline
	// Unreconciled counts the edges on which one end may have applied a flow
	// that the other did not.
	Unreconciled  uint64
	Joined        bool                   // it began with the median of neighbours' snapshots
	Resets        uint64                 // edges that began again with a new start of the neighbour
	Asked, Resent uint64                 // snapshots asked for, and sent again
	Ignored       [lastIgnore + 1]uint64 // messages, by reason
}

// Since returns what was counted after an earlier moment.
func (s Stats) Since(before Stats) Stats {
	s.Steps -= before.Steps
	s.Flows -= before.Flows
	s.Late -= before.Late
	s.Skipped -= before.Skipped
	s.Waits -= before.Waits
	s.Unreconciled -= before.Unreconciled
	s.Resets -= before.Resets
	s.Asked -= before.Asked
	s.Resent -= before.Resent
	for i := range s.Ignored {
		s.Ignored[i] -= before.Ignored[i]
	}
	return s
}

// Ignore is why a message was ignored. It is a metric's label.
type Ignore uint8

// The reasons.
const (
	IgnoreStranger  Ignore = iota // not a neighbour
	IgnoreDimension               // a vector of another length
	IgnoreNotFinite
	IgnoreBoot      // of, or for, another start of a program
	IgnoreDuplicate // a snapshot that is here already, or was applied
	IgnoreSequence  // ahead of what the edge can be at
	IgnoreRound     // of another run or round
	IgnoreMalformed // not a message
	IgnoreSeal      // does not open
	IgnoreNoKey     // the key to open it has not come yet
	lastIgnore      = IgnoreNoKey
)

// String is the reason's name in metrics and logs.
func (r Ignore) String() string {
	return [...]string{"stranger", "dimension", "not_finite", "boot", "duplicate", "sequence",
		"round", "malformed", "seal", "no_key"}[r]
}

// Ignores returns all reasons, for closed label sets.
func Ignores() []Ignore {
	all := make([]Ignore, lastIgnore+1)
	for i := range all {
		all[i] = Ignore(i)
	}
	return all
}
