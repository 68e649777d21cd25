package d2d

import "github.com/fedmesh/fedmesh/wire"

// edgeOfSender returns the edge that a message is on, or nil, with the reason counted.
func (m *mixer[T]) edgeOfSender(p messageSender) *edge[T] {
	e := m.edge(p.ID)
	if e == nil {
		return m.ignore(IgnoreNotNeighbor)
	}
	m.noteBoot(e, p.Boot)
	if p.ReceiverBoot != m.cfg.Boot || p.Boot != e.theirBoot {
		return m.ignore(IgnoreOtherBoot)
	}
	e.silentWaits, e.stepsWaitForIt = 0, true
	return e
}

func (m *mixer[T]) ignore(why IgnoreReason) *edge[T] {
	m.stats.IgnoredMessages[why]++
	return nil
}

// noteBoot takes note of the start of the other end's program. In a block with an
// end, an edge is to one start of it: who comes back waits for the next block.
func (m *mixer[T]) noteBoot(e *edge[T], boot wire.Epoch) {
	switch {
	case e.theirBoot == 0:
		e.theirBoot = boot
	case boot > e.theirBoot && m.cfg.BlockSteps == 0:
		m.reset(e)
		e.theirBoot = boot
	case boot > e.theirBoot:
		e.stepsWaitForIt = false
	}
}

// reset begins an edge again at q = 1. What was watched stays, or a neighbour that lies could begin again before each
// flow.
func (m *mixer[T]) reset(e *edge[T]) {
	m.stats.Resets++
	m.detachSnapshot(&e.previousSnapshot)
	m.detachSnapshot(&e.own)
	m.recycle(&e.theirParameters)
	m.recycle(&e.theirNextParameters)
	fresh := edge[T]{id: e.id, weight: e.weight, flowBound: e.flowBound, stepsWaitForIt: true, flowWatch: e.flowWatch}
	*e = fresh
}

func (m *mixer[T]) handleGreeting(ev neighborGreeted) {
	e := m.edge(ev.From.ID)
	if e == nil {
		m.ignore(IgnoreNotNeighbor)
		return
	}
	m.noteBoot(e, ev.From.Boot)
	if ev.From.Boot == e.theirBoot && ev.From.ReceiverBoot != m.cfg.Boot {
		m.emit(sendGreeting{e.addressFor(0)})
	}
}

func (m *mixer[T]) handleSnapshot(ev snapshotReceived[T]) {
	e := m.edgeOfSender(ev.From)
	switch {
	case e == nil:
		return
	case len(ev.X) != len(m.x):
		m.ignore(IgnoreDimension)
		return
	case !finite(ev.X):
		m.ignore(IgnoreNotFinite)
		return
	}
	switch {
	case ev.Seq == e.seq && e.appliedFlows < e.seq && e.theirParameters == nil:
		e.theirParameters = ev.X
	case ev.Seq == e.seq+1 && e.theirNextParameters == nil:
		e.theirNextParameters = ev.X
	case ev.Seq > e.seq+1:
		m.ignore(IgnoreSequence)
		return
	default:
		m.ignore(IgnoreDuplicate)
		return
	}
	m.noteTheirApplied(e, ev.Seq-1)
}

func (m *mixer[T]) handleSnapshotRequest(ev snapshotRequested) {
	e := m.edgeOfSender(ev.From)
	if e == nil || ev.Seq == 0 || ev.Seq > e.seq+1 {
		return
	}
	m.noteTheirApplied(e, ev.Seq-1)
	for _, s := range []struct {
		seq  uint64
		snap *snapshot[T]
	}{{e.seq, e.own}, {e.seq - 1, e.previousSnapshot}} {
		if s.seq == ev.Seq && s.snap != nil {
			m.stats.ResentSnapshots++
			m.emit(resendSnapshot{s.snap.step})
		}
	}
}

func (m *mixer[T]) theyFinished(ev neighborFinished) {
	e := m.edgeOfSender(ev.From)
	if e == nil || ev.Applied > e.seq || ev.LastSeq > e.seq+1 {
		return
	}
	e.theyFinished, e.theirLastSeq = true, ev.LastSeq
	m.noteTheirApplied(e, ev.Applied)
	if !ev.Drained && m.state >= stateDraining && e.drained() {
		m.emitFinish(e)
	}
}

// noteTheirApplied takes note that the other end has applied its flows up to seq.
func (m *mixer[T]) noteTheirApplied(e *edge[T], seq uint64) {
	e.theirAppliedFlows = max(e.theirAppliedFlows, seq)
	m.dropUnneededSnapshots(e)
}

// dropUnneededSnapshots lets go of the own snapshots that neither end needs.
func (m *mixer[T]) dropUnneededSnapshots(e *edge[T]) {
	if e.seq > 0 && e.theirAppliedFlows >= e.seq-1 {
		m.detachSnapshot(&e.previousSnapshot)
	}
	if e.theirAppliedFlows >= e.seq && e.appliedFlows == e.seq {
		m.detachSnapshot(&e.own)
	}
}

// detachSnapshot takes an edge off a snapshot.
func (m *mixer[T]) detachSnapshot(p **snapshot[T]) {
	s := *p
	if s == nil {
		return
	}
	*p = nil
	if s.edges--; s.edges == 0 {
		m.emit(releaseSnapshot{s.step})
		m.recycle(&s.x)
	}
}

func (m *mixer[T]) recycle(p *[]T) {
	if *p != nil && len(m.freeBuffers) <= len(m.edges) {
		m.freeBuffers = append(m.freeBuffers, *p)
	}
	*p = nil
}

// copyOfX returns the parameters in a buffer of their own.
func (m *mixer[T]) copyOfX() []T {
	b := m.buffer()
	copy(b, m.x)
	return b
}

// buffer returns room for a snapshot, with whatever in it.
func (m *mixer[T]) buffer() []T {
	n := len(m.freeBuffers)
	if n == 0 {
		return make([]T, len(m.x))
	}
	b := m.freeBuffers[n-1]
	m.freeBuffers = m.freeBuffers[:n-1]
	return b
}

func finite[T wire.Float](x []T) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// wants tells whether a neighbour's snapshot q can be of use.
func (m *mixer[T]) wants(id wire.AgentID, seq uint64) bool {
	e := m.edge(id)
	return e != nil && (seq == e.seq && e.lacksTheirSnapshot() || seq == e.seq+1 && e.theirNextParameters == nil ||
		seq > e.seq+1)
}

// waitsFor tells whether steps wait for a neighbour.
func (m *mixer[T]) waitsFor(id wire.AgentID) bool {
	e := m.edge(id)
	return e != nil && e.stepsWaitForIt && m.state != stateDone
}
