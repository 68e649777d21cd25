package d2d

import "github.com/fedmesh/fedmesh/wire"

// Event is an input of one of the state machines. Both the exchange and the MixingBlock accept Start, LocalStepTaken,
// Tick and MessageReceived. A MixingBlock also accepts RoundAnswerRequested, RestRequirementChanged and StopBlock. The
// mixer accepts snapshotReceived, snapshotRequested, neighborFinished and neighborGreeted.
type Event interface{ event() }

// Start begins the block. The current parameters are the initial parameters x_0.
type Start struct{}

// LocalStepTaken reports that the local step requested by computeLocalStep has been applied to the parameters.
type LocalStepTaken struct{}

// messageSender identifies the sender of a message and the process of this agent to which the message is addressed.
type messageSender struct {
	AgentID      wire.AgentID
	SenderBoot   wire.Epoch // boot epoch of the sender
	ReceiverBoot wire.Epoch // boot epoch of the receiver as known to the sender; 0 means unknown
}

// snapshotReceived is delivered when a snapshot from a neighbour has arrived. The mixer takes ownership of Parameters.
type snapshotReceived[T wire.Float] struct {
	Sender      messageSender
	SnapshotSeq uint64 // sequence number of the snapshot on this edge
	Parameters  []T
}

// snapshotRequested is delivered when a neighbour requests a snapshot of this agent that it has not received.
type snapshotRequested struct {
	Sender      messageSender
	SnapshotSeq uint64
}

// neighborFinished is delivered when a neighbour reports the progress of its end of the edge. The neighbour sends no
// snapshot after LastSeq and has applied the flows up to AppliedFlowSeq.
type neighborFinished struct {
	Sender                  messageSender
	LastSeq, AppliedFlowSeq uint64
	IsEdgeDrained           bool // whether the sender regards the edge as drained, so that it needs no answer
}

// neighborGreeted is delivered when a neighbour has started or restarted.
type neighborGreeted struct{ Sender messageSender }

// Tick is delivered when the deadline may have passed.
type Tick struct{}

func (Start) event()               {}
func (LocalStepTaken) event()      {}
func (snapshotReceived[T]) event() {}
func (snapshotRequested) event()   {}
func (neighborFinished) event()    {}
func (neighborGreeted) event()     {}
func (Tick) event()                {}

// Effect is an output of one of the state machines. The host performs PublishMessage and, for a MixingBlock,
// TakeLocalSteps, BlockStarted, AnswerRound and SaveBlock. The mixer returns computeLocalStep, sendSnapshot,
// resendSnapshot, releaseSnapshot, requestSnapshot, sendFinish, sendGreeting and mixingEnded.
type Effect interface{ effect() }

// computeLocalStep requests that the host performs the local step with the number Step on the parameters. Steps are
// counted from 1.
type computeLocalStep struct{ Step uint64 }

// edgeReceiver identifies the neighbour that receives a snapshot on one edge.
type edgeReceiver struct {
	NeighborID  wire.AgentID
	Boot        wire.Epoch // boot epoch of the neighbour; 0 means unknown
	SnapshotSeq uint64
}

// sendSnapshot makes the host publish a snapshot. The host encrypts the snapshot before the next call of Step. It keeps
// the encrypted bytes under the step number until releaseSnapshot.
type sendSnapshot[T wire.Float] struct {
	Step       uint64
	Parameters []T // valid only until the next call of Step
	Receivers  []edgeReceiver
}

// resendSnapshot makes the host publish the encrypted snapshot of a step again.
type resendSnapshot struct{ Step uint64 }

// releaseSnapshot is emitted when the encrypted snapshot of a step is no longer needed.
type releaseSnapshot struct{ Step uint64 }

// requestSnapshot requests a missing snapshot from a neighbour.
type requestSnapshot struct{ Receiver edgeReceiver }

// sendFinish informs a neighbour of the progress of this end of the edge.
type sendFinish struct {
	Receiver       edgeReceiver // receiver; its SnapshotSeq is the number of the last snapshot that was sent
	AppliedFlowSeq uint64
	IsEdgeDrained  bool // whether this agent regards the edge as drained, so that it needs no answer
}

// sendGreeting informs a neighbour that this agent has started.
type sendGreeting struct{ Receiver edgeReceiver }

// mixingEnded ends the block. The parameters are now the final parameters x_H, after H steps. The mixer continues to
// answer its neighbours.
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

// MixingStats holds a mixer's counters for the current block.
type MixingStats struct {
	LocalSteps   uint64
	AppliedFlows uint64
	LateFlows    uint64 // number of flows that were applied after the step of their snapshots
	// SkippedSnapshots is the number of snapshots that were not sent on an edge because the edge's previous flow was
	// not applied yet.
	SkippedSnapshots uint64
	TimedOutWaits    uint64 // number of steps that stopped waiting for neighbours at the deadline
	// UnreconciledEdges is the number of edges on which one end may have applied a flow that the other end has not
	// applied.
	UnreconciledEdges uint64
	// JoinedFromSnapshots is true if the block began with the median of the neighbours' snapshots.
	JoinedFromSnapshots bool
	// EdgeResets is the number of edges that were reset because the neighbour restarted.
	EdgeResets                          uint64
	RequestedSnapshots, ResentSnapshots uint64
	IgnoredMessagesByReason             [lastIgnoreReason + 1]uint64
}

// CountedSince returns the counts that were added since the earlier state before of the counters.
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

// IgnoreReason is the reason why a message was ignored. It is a metric label.
type IgnoreReason uint8

// Reasons for ignoring a message.
const (
	IgnoreNotNeighbor    IgnoreReason = iota
	IgnoreWrongDimension              // the vector has a different length
	IgnoreNotFinite
	IgnoreOtherBoot     // the message has another boot epoch of the sender or of the receiver
	IgnoreDuplicate     // the snapshot was already received or applied
	IgnoreSequenceAhead // the sequence number is too high for the edge
	IgnoreOtherRound    // the message belongs to another run or round
	IgnoreMalformed     // the message cannot be decoded
	IgnoreUnsealFailed  // decryption or the sender proof has failed
	IgnoreNoKey         // the key for decrypting the message has not arrived yet
	lastIgnoreReason    = IgnoreNoKey
)

// String returns the name of the reason in metrics and logs.
func (r IgnoreReason) String() string {
	return [...]string{"stranger", "dimension", "not_finite", "boot", "duplicate", "sequence",
		"round", "malformed", "seal", "no_key"}[r]
}

// IgnoreReasons returns all reasons.
func IgnoreReasons() []IgnoreReason {
	all := make([]IgnoreReason, lastIgnoreReason+1)
	for i := range all {
		all[i] = IgnoreReason(i)
	}
	return all
}
