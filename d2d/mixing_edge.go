package d2d

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// mixingEdge is this agent's end of an edge: stop and wait, with a sequence q of its
// own. The q-th flow is w·(theirs − ours) of the two q-th snapshots. The
// messages of the other end tell how far it is: its snapshot q+1, or its asking
// for ours, means that it has applied flow q.
type mixingEdge[T wire.Float] struct {
	id           wire.AgentID
	mixingWeight T
	clipBound    float64    // τ; 0 = no bound
	theirBoot    wire.Epoch // of the other end; 0 = not known

	seq                 uint64                // q of the newest own snapshot; 0 = none yet
	ownSnapshot         *parameterSnapshot[T] // the q-th
	previousSnapshot    *parameterSnapshot[T] // the q−1-th, while the other end may miss it
	theirParameters     []T                   // the other end's q-th
	theirNextParameters []T                   // the other end's q+1-th
	appliedFlows        uint64                // flows 1 to applied are in the parameters, q−1 or q
	theirAppliedFlows   uint64                // the flows that the other end is known to have applied

	nextRequestAt    time.Time // when theirs is missed
	snapshotRequests int       // for it, so far
	stepsWaitForIt   bool      // the steps wait for this edge
	silentWaits      int       // waits in a row that it spoiled without a sign of life

	hasNeighborFinished bool   // the other end has said so,
	theirLastSeq        uint64 // and this is the last that it issued

	flowStats edgeFlowStats // of the flows since the last answer, where they are bounded
}

// parameterSnapshot is the parameters at one moment, shared by the edges that carry it.
type parameterSnapshot[T wire.Float] struct {
	step       uint64
	parameters []T
	edgeCount  int
}

// canSendSnapshot tells that the edge can carry the next snapshot.
func (e *mixingEdge[T]) canSendSnapshot() bool { return e.theirBoot != 0 && e.appliedFlows == e.seq }

// hasBothSnapshots tells that both ends' q-th snapshots are here, and their flow is not applied.
func (e *mixingEdge[T]) hasBothSnapshots() bool {
	return e.theirParameters != nil && e.appliedFlows < e.seq
}

// lacksTheirSnapshot tells that the other end's q-th snapshot should come.
func (e *mixingEdge[T]) lacksTheirSnapshot() bool {
	return e.appliedFlows < e.seq && e.theirParameters == nil && (!e.hasNeighborFinished || e.theirLastSeq >= e.seq)
}

// lastCommonFlow is the last flow that both ends can apply, once both have finished.
func (e *mixingEdge[T]) lastCommonFlow() uint64 { return min(e.seq, e.theirLastSeq) }

// isDrained tells that both ends have applied all that they can.
func (e *mixingEdge[T]) isDrained() bool {
	return e.hasNeighborFinished && e.appliedFlows >= e.lastCommonFlow() && e.theirAppliedFlows >= e.lastCommonFlow()
}

// isUnreconciled tells that one end may have applied a flow that the other has not.
func (e *mixingEdge[T]) isUnreconciled() bool {
	if e.hasNeighborFinished {
		return !e.isDrained()
	}
	return e.appliedFlows < e.seq || e.theirAppliedFlows < e.seq
}

func (e *mixingEdge[T]) receiverForSnapshot(seq uint64) edgeReceiver {
	return edgeReceiver{NeighborID: e.id, Boot: e.theirBoot, SnapshotSeq: seq}
}
