package d2d

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// mixingEdge is this agent's end of an edge. It is a stop-and-wait protocol with sequence numbers q. The q-th flow is
// w·(theirs − ours) of the two q-th snapshots. A snapshot q+1 from the other end, or a request for ours, implies that
// the other end has applied flow q.
type mixingEdge[T wire.Float] struct {
	id           wire.AgentID
	mixingWeight T
	clipBound    float64    // clip bound τ; 0 = no bound
	theirBoot    wire.Epoch // boot epoch of the other end; 0 = unknown

	seq                 uint64                // sequence number q of the latest own snapshot; 0 = none yet
	ownSnapshot         *parameterSnapshot[T] // own snapshot q
	previousSnapshot    *parameterSnapshot[T] // own snapshot q−1; nil if the other end no longer needs it
	theirParameters     []T                   // snapshot of the other end with sequence number q
	theirNextParameters []T                   // snapshot of the other end with sequence number q+1; nil if missing
	appliedFlows        uint64                // number of the last flow that this end has applied: q−1 or q
	theirAppliedFlows   uint64                // number of the last flow that the other end is known to have applied

	nextRequestAt    time.Time // time at which theirParameters is requested again
	snapshotRequests int       // number of requests for theirParameters so far
	stepsWaitForIt   bool      // whether steps wait for this edge
	silentWaits      int       // number of consecutive waits without a message from the other end

	hasNeighborFinished bool
	theirLastSeq        uint64 // sequence number of the last snapshot of the other end; valid if hasNeighborFinished

	flowStats edgeFlowStats // statistics of clipped flows since the last answer
}

// parameterSnapshot holds the parameters at one step. Several edges share it.
type parameterSnapshot[T wire.Float] struct {
	step       uint64
	parameters []T
	edgeCount  int
}

// canSendSnapshot reports whether the edge is ready for the next snapshot.
func (e *mixingEdge[T]) canSendSnapshot() bool { return e.theirBoot != 0 && e.appliedFlows == e.seq }

// hasBothSnapshots reports whether snapshot q of both ends is available and the flow has not been applied.
func (e *mixingEdge[T]) hasBothSnapshots() bool {
	return e.theirParameters != nil && e.appliedFlows < e.seq
}

// lacksTheirSnapshot reports whether snapshot q of the other end is expected and missing.
func (e *mixingEdge[T]) lacksTheirSnapshot() bool {
	return e.appliedFlows < e.seq && e.theirParameters == nil && (!e.hasNeighborFinished || e.theirLastSeq >= e.seq)
}

// lastCommonFlow returns the last flow that both ends can apply, if both have finished.
func (e *mixingEdge[T]) lastCommonFlow() uint64 { return min(e.seq, e.theirLastSeq) }

// isDrained reports whether both ends have applied all flows that they can apply.
func (e *mixingEdge[T]) isDrained() bool {
	return e.hasNeighborFinished && e.appliedFlows >= e.lastCommonFlow() && e.theirAppliedFlows >= e.lastCommonFlow()
}

// isUnreconciled reports whether one end may have applied a flow that the other end has not.
func (e *mixingEdge[T]) isUnreconciled() bool {
	if e.hasNeighborFinished {
		return !e.isDrained()
	}
	return e.appliedFlows < e.seq || e.theirAppliedFlows < e.seq
}

func (e *mixingEdge[T]) receiverForSnapshot(seq uint64) edgeReceiver {
	return edgeReceiver{NeighborID: e.id, Boot: e.theirBoot, SnapshotSeq: seq}
}
