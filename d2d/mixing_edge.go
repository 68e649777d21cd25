package d2d

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// mixingEdge is this agent's end of an edge. The two ends use a stop-and-wait protocol with sequence numbers q. The
// flow with the number q is w·(theirs − ours), where theirs and ours are the snapshots with the number q of the two
// ends and w is the weight of the edge. A snapshot q+1 from the other end, or a request for this end's snapshot q+1,
// implies that the other end has applied flow q.
type mixingEdge[T wire.Float] struct {
	id           wire.AgentID
	mixingWeight T
	clipBound    float64    // clip bound τ, the maximum norm of the mixed parameter difference; 0 means no bound
	theirBoot    wire.Epoch // boot epoch (process number) of the other end; 0 means unknown

	// sequence number q of the latest own snapshot; 0 means that there is none yet
	seq                 uint64
	ownSnapshot         *parameterSnapshot[T] // snapshot of this agent with the sequence number q
	previousSnapshot    *parameterSnapshot[T] // own snapshot q−1; nil if the other end no longer needs it
	theirParameters     []T                   // snapshot of the other end with sequence number q
	theirNextParameters []T                   // snapshot of the other end with sequence number q+1; nil if missing
	appliedFlows        uint64                // number of the last flow that this end has applied: q−1 or q
	theirAppliedFlows   uint64                // number of the last flow that the other end is known to have applied

	nextRequestAt    time.Time // time at which this end requests theirParameters again
	snapshotRequests int       // number of requests for theirParameters so far
	stepsWaitForIt   bool      // whether mixing steps wait for this edge
	silentWaits      int       // number of consecutive waits that ended without a message from the other end

	hasNeighborFinished bool
	// sequence number of the last snapshot that the other end sends; valid if hasNeighborFinished
	theirLastSeq uint64

	flowStats edgeFlowStats // statistics of clipped flows since the last report
}

// parameterSnapshot holds the agent's parameters at one step. Several edges share the snapshot.
type parameterSnapshot[T wire.Float] struct {
	step       uint64
	parameters []T
	edgeCount  int
}

// canSendSnapshot reports whether the edge is ready for this end's next snapshot.
func (e *mixingEdge[T]) canSendSnapshot() bool { return e.theirBoot != 0 && e.appliedFlows == e.seq }

// hasBothSnapshots reports whether the snapshots of both ends with the current sequence number are available and their
// flow has not been applied.
func (e *mixingEdge[T]) hasBothSnapshots() bool {
	return e.theirParameters != nil && e.appliedFlows < e.seq
}

// lacksTheirSnapshot reports whether the other end's snapshot with the current sequence number is expected and missing.
func (e *mixingEdge[T]) lacksTheirSnapshot() bool {
	return e.appliedFlows < e.seq && e.theirParameters == nil && (!e.hasNeighborFinished || e.theirLastSeq >= e.seq)
}

// lastCommonFlow returns the number of the last flow that both ends can apply. It is valid if both ends have finished.
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
