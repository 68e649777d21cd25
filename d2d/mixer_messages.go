package d2d

import "github.com/fedmesh/fedmesh/wire"

// edgeOfSender returns the edge to the sender of a message. If the message must be ignored, edgeOfSender counts the
// reason and returns nil.
func (m *mixer[T]) edgeOfSender(p messageSender) *mixingEdge[T] {
	e := m.edgeToNeighbor(p.AgentID)
	if e == nil {
		return m.countIgnoredMessage(IgnoreNotNeighbor)
	}
	m.updateNeighborBoot(e, p.SenderBoot)
	if p.ReceiverBoot != m.cfg.Boot || p.SenderBoot != e.theirBoot {
		return m.countIgnoredMessage(IgnoreOtherBoot)
	}
	e.silentWaits, e.stepsWaitForIt = 0, true
	return e
}

func (m *mixer[T]) countIgnoredMessage(why IgnoreReason) *mixingEdge[T] {
	m.stats.IgnoredMessagesByReason[why]++
	return nil
}

// updateNeighborBoot records the boot epoch of the neighbour's process. In a finite block an edge belongs to a single
// process of the neighbour, so a restarted neighbour waits for the next block.
func (m *mixer[T]) updateNeighborBoot(e *mixingEdge[T], boot wire.Epoch) {
	switch {
	case e.theirBoot == 0:
		e.theirBoot = boot
	case boot > e.theirBoot && m.cfg.BlockSteps == 0:
		m.resetEdge(e)
		e.theirBoot = boot
	case boot > e.theirBoot:
		e.stepsWaitForIt = false
	}
}

// resetEdge restarts the protocol of an edge at the sequence number 1. It keeps the flow statistics, because otherwise
// a malicious neighbour could clear the statistics by restarting before each flow.
func (m *mixer[T]) resetEdge(e *mixingEdge[T]) {
	m.stats.EdgeResets++
	m.detachSnapshot(&e.previousSnapshot)
	m.detachSnapshot(&e.ownSnapshot)
	m.recycleSnapshotBuffer(&e.theirParameters)
	m.recycleSnapshotBuffer(&e.theirNextParameters)
	fresh := mixingEdge[T]{id: e.id, mixingWeight: e.mixingWeight, clipBound: e.clipBound, stepsWaitForIt: true,
		flowStats: e.flowStats}
	*e = fresh
}

func (m *mixer[T]) handleGreeting(ev neighborGreeted) {
	e := m.edgeToNeighbor(ev.Sender.AgentID)
	if e == nil {
		m.countIgnoredMessage(IgnoreNotNeighbor)
		return
	}
	m.updateNeighborBoot(e, ev.Sender.SenderBoot)
	if ev.Sender.SenderBoot == e.theirBoot && ev.Sender.ReceiverBoot != m.cfg.Boot {
		m.emitEffect(sendGreeting{e.receiverForSnapshot(0)})
	}
}

func (m *mixer[T]) handleSnapshot(ev snapshotReceived[T]) {
	e := m.edgeOfSender(ev.Sender)
	switch {
	case e == nil:
		return
	case len(ev.Parameters) != len(m.parameters):
		m.countIgnoredMessage(IgnoreWrongDimension)
		return
	case !allFinite(ev.Parameters):
		m.countIgnoredMessage(IgnoreNotFinite)
		return
	}
	switch {
	case ev.SnapshotSeq == e.seq && e.appliedFlows < e.seq && e.theirParameters == nil:
		e.theirParameters = ev.Parameters
	case ev.SnapshotSeq == e.seq+1 && e.theirNextParameters == nil:
		e.theirNextParameters = ev.Parameters
	case ev.SnapshotSeq > e.seq+1:
		m.countIgnoredMessage(IgnoreSequenceAhead)
		return
	default:
		m.countIgnoredMessage(IgnoreDuplicate)
		return
	}
	m.recordTheirAppliedFlows(e, ev.SnapshotSeq-1)
}

func (m *mixer[T]) handleSnapshotRequest(ev snapshotRequested) {
	e := m.edgeOfSender(ev.Sender)
	if e == nil || ev.SnapshotSeq == 0 || ev.SnapshotSeq > e.seq+1 {
		return
	}
	m.recordTheirAppliedFlows(e, ev.SnapshotSeq-1)
	for _, s := range []struct {
		seq  uint64
		snap *parameterSnapshot[T]
	}{{e.seq, e.ownSnapshot}, {e.seq - 1, e.previousSnapshot}} {
		if s.seq == ev.SnapshotSeq && s.snap != nil {
			m.stats.ResentSnapshots++
			m.emitEffect(resendSnapshot{s.snap.step})
		}
	}
}

func (m *mixer[T]) handleNeighborFinished(ev neighborFinished) {
	e := m.edgeOfSender(ev.Sender)
	if e == nil || ev.AppliedFlowSeq > e.seq || ev.LastSeq > e.seq+1 {
		return
	}
	e.hasNeighborFinished, e.theirLastSeq = true, ev.LastSeq
	m.recordTheirAppliedFlows(e, ev.AppliedFlowSeq)
	if !ev.IsEdgeDrained && m.state >= stateDraining && e.isDrained() {
		m.emitFinish(e)
	}
}

// recordTheirAppliedFlows records that the other end of the edge has applied all flows up to the sequence number seq.
func (m *mixer[T]) recordTheirAppliedFlows(e *mixingEdge[T], seq uint64) {
	e.theirAppliedFlows = max(e.theirAppliedFlows, seq)
	m.dropUnneededSnapshots(e)
}

// dropUnneededSnapshots releases this agent's snapshots that both ends of the edge no longer need.
func (m *mixer[T]) dropUnneededSnapshots(e *mixingEdge[T]) {
	if e.seq > 0 && e.theirAppliedFlows >= e.seq-1 {
		m.detachSnapshot(&e.previousSnapshot)
	}
	if e.theirAppliedFlows >= e.seq && e.appliedFlows == e.seq {
		m.detachSnapshot(&e.ownSnapshot)
	}
}

// detachSnapshot removes an edge's reference to a snapshot. If the reference was the last one, it releases the
// snapshot.
func (m *mixer[T]) detachSnapshot(p **parameterSnapshot[T]) {
	s := *p
	if s == nil {
		return
	}
	*p = nil
	if s.edgeCount--; s.edgeCount == 0 {
		m.emitEffect(releaseSnapshot{s.step})
		m.recycleSnapshotBuffer(&s.parameters)
	}
}

func (m *mixer[T]) recycleSnapshotBuffer(p *[]T) {
	if *p != nil && len(m.freeBuffers) <= len(m.edges) {
		m.freeBuffers = append(m.freeBuffers, *p)
	}
	*p = nil
}

func (m *mixer[T]) copyParameters() []T {
	b := m.takeSnapshotBuffer()
	copy(b, m.parameters)
	return b
}

// takeSnapshotBuffer returns a buffer for a snapshot. The initial content of the buffer is undefined.
func (m *mixer[T]) takeSnapshotBuffer() []T {
	n := len(m.freeBuffers)
	if n == 0 {
		return make([]T, len(m.parameters))
	}
	b := m.freeBuffers[n-1]
	m.freeBuffers = m.freeBuffers[:n-1]
	return b
}

func allFinite[T wire.Float](x []T) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// needsNeighborSnapshot reports whether the mixer still needs the snapshot with the sequence number seq of a neighbour.
func (m *mixer[T]) needsNeighborSnapshot(id wire.AgentID, seq uint64) bool {
	e := m.edgeToNeighbor(id)
	return e != nil && (seq == e.seq && e.lacksTheirSnapshot() || seq == e.seq+1 && e.theirNextParameters == nil ||
		seq > e.seq+1)
}

func (m *mixer[T]) waitsForNeighbor(id wire.AgentID) bool {
	e := m.edgeToNeighbor(id)
	return e != nil && e.stepsWaitForIt && m.state != stateDone
}
