package d2d

import "github.com/fedmesh/fedmesh/wire"

// Event is Start, LocalStepTaken or Tick; MessageReceived of an exchange; RoundAnswerRequested, RestRequirementChanged
// or StopBlock of a MixingBlock; inside the mixer snapshotReceived, snapshotRequested, neighborFinished or
// neighborGreeted.
type Event interface{ event() }

// Start begins the block: the parameters are x_0.
type Start struct{}

// LocalStepTaken says that the local step asked for by computeLocalStep is in the parameters.
type LocalStepTaken struct{}

// messageSender tells where a message comes from and whom it is for.
type messageSender struct {
	AgentID      wire.AgentID
	SenderBoot   wire.Epoch // the start of the sender's program
	ReceiverBoot wire.Epoch // the start of this agent's program that the sender knows; 0 if none
}

// snapshotReceived is a neighbour's snapshot. X becomes the machine's.
type snapshotReceived[T wire.Float] struct {
	Sender      messageSender
	SnapshotSeq uint64 // q on this edge
	Parameters  []T
}

// snapshotRequested says that a neighbour misses this agent's snapshot q.
type snapshotRequested struct {
	Sender      messageSender
	SnapshotSeq uint64
}

// neighborFinished says how far a neighbour's end of the edge went: it will issue
// nothing after LastSeq, and has applied the flows up to AppliedFlowSeq.
type neighborFinished struct {
	Sender                  messageSender
	LastSeq, AppliedFlowSeq uint64
	IsEdgeDrained           bool // it needs no answer
}

// neighborGreeted says that a neighbour has started, perhaps anew.
type neighborGreeted struct{ Sender messageSender }

// Tick says that the deadline may have passed.
type Tick struct{}

func (Start) event()               {}
func (LocalStepTaken) event()      {}
func (snapshotReceived[T]) event() {}
func (snapshotRequested) event()   {}
func (neighborFinished) event()    {}
func (neighborGreeted) event()     {}
func (Tick) event()                {}

// Effect is PublishMessage; TakeLocalSteps, BlockStarted, AnswerRound or SaveBlock of a MixingBlock; inside the mixer
// computeLocalStep, sendSnapshot, resendSnapshot, releaseSnapshot, requestSnapshot, sendFinish, sendGreeting or
// mixingEnded.
type Effect interface{ effect() }

// computeLocalStep asks for local step Step, from 1, on the parameters.
type computeLocalStep struct{ Step uint64 }

// edgeReceiver addresses a snapshot on one edge.
type edgeReceiver struct {
	NeighborID  wire.AgentID
	Boot        wire.Epoch // 0 while it is not known
	SnapshotSeq uint64
}

// sendSnapshot asks the host to publish a snapshot. The host seals it before it steps
// the machine again, and keeps the sealed bytes under the number of the step
// until releaseSnapshot.
type sendSnapshot[T wire.Float] struct {
	Step       uint64
	Parameters []T // borrowed
	Receivers  []edgeReceiver
}

// resendSnapshot asks the host to publish the sealed bytes of a step again.
type resendSnapshot struct{ Step uint64 }

// releaseSnapshot says that the sealed bytes of a step are needed no longer.
type releaseSnapshot struct{ Step uint64 }

// requestSnapshot asks a neighbour for a snapshot that is late.
type requestSnapshot struct{ Receiver edgeReceiver }

// sendFinish tells a neighbour how far this end of the edge went.
type sendFinish struct {
	Receiver       edgeReceiver // Seq is the last that was issued
	AppliedFlowSeq uint64
	IsEdgeDrained  bool // it needs no answer
}

// sendGreeting tells a neighbour that this agent has started.
type sendGreeting struct{ Receiver edgeReceiver }

// mixingEnded ends the block: the parameters are x_H. The machine goes on answering
// its neighbours.
type mixingEnded struct {
	Stats            MixingStats
	EdgeMeasurements []wire.MixingEdgeMeasurement
}

func (computeLocalStep) effect() {}
func (sendSnapshot[T]) effect()  {}
func (resendSnapshot) effect()   {}
func (releaseSnapshot) effect()  {}
func (requestSnapshot) effect()  {}
func (sendFinish) effect()       {}
func (sendGreeting) effect()     {}
func (mixingEnded) effect()      {}

// MixingStats counts what a mixer did in its block.
type MixingStats struct {
	LocalSteps       uint64 // local steps
	AppliedFlows     uint64 // flows applied
	LateFlows        uint64 // of these, after the step of the snapshot
	SkippedSnapshots uint64 // pairs of step and edge that issued no snapshot, since the edge was behind
	TimedOutWaits    uint64 // steps whose wait ended at its deadline
	// UnreconciledEdges counts the edges on which one end may have applied a flow
	// that the other did not.
	UnreconciledEdges uint64
	// it began with the median of neighbours' snapshots
	JoinedFromSnapshots bool
	// edges that began again with a new start of the neighbour
	EdgeResets                          uint64
	RequestedSnapshots, ResentSnapshots uint64                       // snapshots asked for, and sent again
	IgnoredMessagesByReason             [lastIgnoreReason + 1]uint64 // messages, by reason
}

// CountedSince returns what was counted after an earlier moment.
func (s MixingStats) CountedSince(before MixingStats) MixingStats {
	s.LocalSteps -= before.LocalSteps
	s.AppliedFlows -= before.AppliedFlows
	s.LateFlows -= before.LateFlows
	s.SkippedSnapshots -= before.SkippedSnapshots
	s.TimedOutWaits -= before.TimedOutWaits
	s.UnreconciledEdges -= before.UnreconciledEdges
	s.EdgeResets -= before.EdgeResets
	s.RequestedSnapshots -= before.RequestedSnapshots
	s.ResentSnapshots -= before.ResentSnapshots
	for i := range s.IgnoredMessagesByReason {
		s.IgnoredMessagesByReason[i] -= before.IgnoredMessagesByReason[i]
	}
	return s
}

// IgnoreReason is why a message was ignored. It is a metric's label.
type IgnoreReason uint8

// The reasons.
const (
	IgnoreNotNeighbor    IgnoreReason = iota // not a neighbour
	IgnoreWrongDimension                     // a vector of another length
	IgnoreNotFinite
	IgnoreOtherBoot     // of, or for, another start of a program
	IgnoreDuplicate     // a snapshot that is here already, or was applied
	IgnoreSequenceAhead // ahead of what the edge can be at
	IgnoreOtherRound    // of another run or round
	IgnoreMalformed     // not a message
	IgnoreUnsealFailed  // does not open
	IgnoreNoKey         // the key to open it has not come yet
	lastIgnoreReason    = IgnoreNoKey
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
