package d2d

import "github.com/fedmesh/fedmesh/wire"

// Event is Start, Stepped, Received, Asked, Finished, Greeted or Tick.
type Event interface{ event() }

// Start begins the block: the parameters are x_0.
type Start struct{}

// Stepped says that the local step asked for by Compute is in the parameters.
type Stepped struct{}

// Peer tells where a message comes from and whom it is for.
type Peer struct {
	ID   wire.AgentID
	Boot wire.Epoch // the start of the sender's program
	For  wire.Epoch // the start of this agent's program that the sender knows; 0 if none
}

// Received is a neighbour's snapshot. X becomes the machine's.
type Received[T wire.Float] struct {
	From Peer
	Seq  uint64 // q on this edge
	X    []T
}

// Asked says that a neighbour misses this agent's snapshot q.
type Asked struct {
	From Peer
	Seq  uint64
}

// Finished says how far a neighbour's end of the edge went: it will issue
// nothing after Last, and has applied the flows up to Applied.
type Finished struct {
	From          Peer
	Last, Applied uint64
	Drained       bool // it needs no answer
}

// Greeted says that a neighbour has started, perhaps anew.
type Greeted struct{ From Peer }

// Tick says that the deadline may have passed.
type Tick struct{}

func (Start) event()       {}
func (Stepped) event()     {}
func (Received[T]) event() {}
func (Asked) event()       {}
func (Finished) event()    {}
func (Greeted) event()     {}
func (Tick) event()        {}

// Effect is Compute, Send, Resend, Release, Ask, Finish, Greet or Done.
type Effect interface{ effect() }

// Compute asks for local step Step, from 1, on the parameters.
type Compute struct{ Step uint64 }

// To addresses a snapshot on one edge.
type To struct {
	ID   wire.AgentID
	Boot wire.Epoch // 0 while it is not known
	Seq  uint64
}

// Send asks the host to publish a snapshot. The host seals it before it steps
// the machine again, and keeps the sealed bytes under the number of the step
// until Release.
type Send[T wire.Float] struct {
	Step uint64
	X    []T // borrowed
	To   []To
}

// Resend asks the host to publish the sealed bytes of a step again.
type Resend struct{ Step uint64 }

// Release says that the sealed bytes of a step are needed no longer.
type Release struct{ Step uint64 }

// Ask asks a neighbour for a snapshot that is late.
type Ask struct{ To To }

// Finish tells a neighbour how far this end of the edge went.
type Finish struct {
	To      To // Seq is the last that was issued
	Applied uint64
	Drained bool // it needs no answer
}

// Greet tells a neighbour that this agent has started.
type Greet struct{ To To }

// Done ends the block: the parameters are x_H. The machine goes on answering
// its neighbours.
type Done struct{ Stats Stats }

func (Compute) effect() {}
func (Send[T]) effect() {}
func (Resend) effect()  {}
func (Release) effect() {}
func (Ask) effect()     {}
func (Finish) effect()  {}
func (Greet) effect()   {}
func (Done) effect()    {}

// Stats counts what a Mixer did in its block.
type Stats struct {
	Steps   uint64 // local steps
	Flows   uint64 // flows applied
	Late    uint64 // of these, after the step of the snapshot
	Skipped uint64 // pairs of step and edge that issued no snapshot, since the edge was behind
	Waits   uint64 // steps whose wait ended at its deadline
	// Unreconciled counts the edges on which one end may have applied a flow
	// that the other did not.
	Unreconciled  uint64
	Joined        bool                   // it began with a neighbour's snapshot
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
