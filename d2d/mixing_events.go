package d2d

import "github.com/fedmesh/fedmesh/wire"

// Event is Start, Stepped or Tick; Message of an exchange; Wanted, Barred or Stop of a Block; inside the mixer
// received, asked, finished or greeted.
type Event interface{ event() }

// Start begins the block: the parameters are x_0.
type Start struct{}

// LocalStepTaken says that the local step asked for by compute is in the parameters.
type LocalStepTaken struct{}

// messageSender tells where a message comes from and whom it is for.
type messageSender struct {
	ID           wire.AgentID
	Boot         wire.Epoch // the start of the sender's program
	ReceiverBoot wire.Epoch // the start of this agent's program that the sender knows; 0 if none
}

// snapshotReceived is a neighbour's snapshot. X becomes the machine's.
type snapshotReceived[T wire.Float] struct {
	From messageSender
	Seq  uint64 // q on this edge
	X    []T
}

// snapshotRequested says that a neighbour misses this agent's snapshot q.
type snapshotRequested struct {
	From messageSender
	Seq  uint64
}

// neighborFinished says how far a neighbour's end of the edge went: it will issue
// nothing after Last, and has applied the flows up to Applied.
type neighborFinished struct {
	From             messageSender
	LastSeq, Applied uint64
	Drained          bool // it needs no answer
}

// neighborGreeted says that a neighbour has started, perhaps anew.
type neighborGreeted struct{ From messageSender }

// Tick says that the deadline may have passed.
type Tick struct{}

func (Start) event()               {}
func (LocalStepTaken) event()      {}
func (snapshotReceived[T]) event() {}
func (snapshotRequested) event()   {}
func (neighborFinished) event()    {}
func (neighborGreeted) event()     {}
func (Tick) event()                {}

// Effect is Publish; Take, Began, Answer or Save of a Block; inside the mixer compute, send, resend, release, ask,
// finish, greet or ended.
type Effect interface{ effect() }

// computeStep asks for local step Step, from 1, on the parameters.
type computeStep struct{ Step uint64 }

// edgeAddress addresses a snapshot on one edge.
type edgeAddress struct {
	ID   wire.AgentID
	Boot wire.Epoch // 0 while it is not known
	Seq  uint64
}

// sendSnapshot asks the host to publish a snapshot. The host seals it before it steps
// the machine again, and keeps the sealed bytes under the number of the step
// until release.
type sendSnapshot[T wire.Float] struct {
	Step uint64
	X    []T // borrowed
	To   []edgeAddress
}

// resendSnapshot asks the host to publish the sealed bytes of a step again.
type resendSnapshot struct{ Step uint64 }

// releaseSnapshot says that the sealed bytes of a step are needed no longer.
type releaseSnapshot struct{ Step uint64 }

// requestSnapshot asks a neighbour for a snapshot that is late.
type requestSnapshot struct{ To edgeAddress }

// sendFinish tells a neighbour how far this end of the edge went.
type sendFinish struct {
	To      edgeAddress // Seq is the last that was issued
	Applied uint64
	Drained bool // it needs no answer
}

// sendGreeting tells a neighbour that this agent has started.
type sendGreeting struct{ To edgeAddress }

// mixingEnded ends the block: the parameters are x_H. The machine goes on answering
// its neighbours.
type mixingEnded struct {
	Stats            MixingStats
	EdgeMeasurements []wire.EdgeMeasurement
}

func (computeStep) effect()     {}
func (sendSnapshot[T]) effect() {}
func (resendSnapshot) effect()  {}
func (releaseSnapshot) effect() {}
func (requestSnapshot) effect() {}
func (sendFinish) effect()      {}
func (sendGreeting) effect()    {}
func (mixingEnded) effect()     {}

// MixingStats counts what a mixer did in its block.
type MixingStats struct {
	Steps            uint64 // local steps
	Flows            uint64 // flows applied
	LateFlows        uint64 // of these, after the step of the snapshot
	SkippedSnapshots uint64 // pairs of step and edge that issued no snapshot, since the edge was behind
	TimedOutWaits    uint64 // steps whose wait ended at its deadline
	// Unreconciled counts the edges on which one end may have applied a flow
	// that the other did not.
	Unreconciled uint64
	// it began with the median of neighbours' snapshots
	Joined bool
	// edges that began again with a new start of the neighbour
	Resets                              uint64
	RequestedSnapshots, ResentSnapshots uint64                       // snapshots asked for, and sent again
	IgnoredMessages                     [lastIgnoreReason + 1]uint64 // messages, by reason
}

// Since returns what was counted after an earlier moment.
func (s MixingStats) Since(before MixingStats) MixingStats {
	s.Steps -= before.Steps
	s.Flows -= before.Flows
	s.LateFlows -= before.LateFlows
	s.SkippedSnapshots -= before.SkippedSnapshots
	s.TimedOutWaits -= before.TimedOutWaits
	s.Unreconciled -= before.Unreconciled
	s.Resets -= before.Resets
	s.RequestedSnapshots -= before.RequestedSnapshots
	s.ResentSnapshots -= before.ResentSnapshots
	for i := range s.IgnoredMessages {
		s.IgnoredMessages[i] -= before.IgnoredMessages[i]
	}
	return s
}

// IgnoreReason is why a message was ignored. It is a metric's label.
type IgnoreReason uint8

// The reasons.
const (
	IgnoreNotNeighbor IgnoreReason = iota // not a neighbour
	IgnoreDimension                       // a vector of another length
	IgnoreNotFinite
	IgnoreOtherBoot    // of, or for, another start of a program
	IgnoreDuplicate    // a snapshot that is here already, or was applied
	IgnoreSequence     // ahead of what the edge can be at
	IgnoreOtherRound   // of another run or round
	IgnoreMalformed    // not a message
	IgnoreUnsealFailed // does not open
	IgnoreNoKey        // the key to open it has not come yet
	lastIgnoreReason   = IgnoreNoKey
)

// String is the reason's name in metrics and logs.
func (r IgnoreReason) String() string {
	return [...]string{"stranger", "dimension", "not_finite", "boot", "duplicate", "sequence",
		"round", "malformed", "seal", "no_key"}[r]
}

// IgnoreReasons returns all reasons, for closed label sets.
func IgnoreReasons() []IgnoreReason {
	all := make([]IgnoreReason, lastIgnoreReason+1)
	for i := range all {
		all[i] = IgnoreReason(i)
	}
	return all
}
