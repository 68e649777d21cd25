package d2d

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// edge is this agent's end of an edge: stop and wait, with a sequence q of its
// own. The q-th flow is w·(theirs − ours) of the two q-th snapshots. The
// messages of the other end tell how far it is: its snapshot q+1, or its asking
// for ours, means that it has applied flow q.
type edge[T wire.Float] struct {
	id        wire.AgentID
	weight    T
	flowBound float64    // τ; 0 = no bound
	theirBoot wire.Epoch // of the other end; 0 = not known

	seq                 uint64       // q of the newest own snapshot; 0 = none yet
	own                 *snapshot[T] // the q-th
	previousSnapshot    *snapshot[T] // the q−1-th, while the other end may miss it
	theirParameters     []T          // the other end's q-th
	theirNextParameters []T          // the other end's q+1-th
	appliedFlows        uint64       // flows 1 to applied are in the parameters, q−1 or q
	theirAppliedFlows   uint64       // the flows that the other end is known to have applied

	askAt            time.Time // when theirs is missed
	snapshotRequests int       // for it, so far
	stepsWaitForIt   bool      // the steps wait for this edge
	silentWaits      int       // waits in a row that it spoiled without a sign of life

	theyFinished bool   // the other end has said so,
	theirLastSeq uint64 // and this is the last that it issued

	flowWatch flowWatch // of the flows since the last answer, where they are bounded
}

// snapshot is the parameters at one moment, shared by the edges that carry it.
type snapshot[T wire.Float] struct {
	step  uint64
	x     []T
	edges int
}

// canSendSnapshot tells that the edge can carry the next snapshot.
func (e *edge[T]) canSendSnapshot() bool { return e.theirBoot != 0 && e.appliedFlows == e.seq }

// hasBothSnapshots tells that both ends' q-th snapshots are here, and their flow is not applied.
func (e *edge[T]) hasBothSnapshots() bool { return e.theirParameters != nil && e.appliedFlows < e.seq }

// lacksTheirSnapshot tells that the other end's q-th snapshot should come.
func (e *edge[T]) lacksTheirSnapshot() bool {
	return e.appliedFlows < e.seq && e.theirParameters == nil && (!e.theyFinished || e.theirLastSeq >= e.seq)
}

// lastCommonFlow is the last flow that both ends can apply, once both have finished.
func (e *edge[T]) lastCommonFlow() uint64 { return min(e.seq, e.theirLastSeq) }

// drained tells that both ends have applied all that they can.
func (e *edge[T]) drained() bool {
	return e.theyFinished && e.appliedFlows >= e.lastCommonFlow() && e.theirAppliedFlows >= e.lastCommonFlow()
}

// isUnreconciled tells that one end may have applied a flow that the other has not.
func (e *edge[T]) isUnreconciled() bool {
	if e.theyFinished {
		return !e.drained()
	}
	return e.appliedFlows < e.seq || e.theirAppliedFlows < e.seq
}

func (e *edge[T]) addressFor(seq uint64) edgeAddress {
	return edgeAddress{ID: e.id, Boot: e.theirBoot, Seq: seq}
}
