package d2d

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// mixer mixes one agent's parameters with its neighbours', step by step.
type mixer[T wire.Float] struct {
	cfg         MixingConfig[T]
	parameters  []T
	edges       []*mixingEdge[T] // ascending by id
	state       mixerState
	step        uint64    // the local step under way, from 1
	stateEndsAt time.Time // end of joining, waiting or draining
	repeatAt    time.Time // when ask, in joining, or finish is repeated
	freeBuffers [][]T
	effects     []Effect
	stats       MixingStats
}

type mixerState uint8

const (
	stateNotStarted mixerState = iota
	stateJoining               // waits for neighbours' snapshots to begin with
	stateComputing             // the host takes the local step
	stateWaiting               // for snapshots from the neighbours
	stateDraining              // all steps are taken, flows may still come
	stateDone
)

// newMixer returns a mixer that mixes x in place. x belongs to the host while compute is under way, and to the mixer
// from then until ended. newMixer panics if cfg is not valid.
func newMixer[T wire.Float](cfg MixingConfig[T], x []T) *mixer[T] {
	if err := cfg.Validate(); err != nil {
		panic("d2d: New: " + err.Error())
	}
	m := &mixer[T]{cfg: cfg, parameters: x}
	for _, n := range cfg.Neighbors {
		e := &mixingEdge[T]{id: n.ID, mixingWeight: T(n.MixingWeight), clipBound: n.ClipBound, theirBoot: n.Boot,
			stepsWaitForIt: true}
		m.edges = append(m.edges, e)
	}
	if cfg.Trace != nil {
		cfg.Trace.MixingStarts(cfg.Boot, x)
	}
	return m
}

// Stats returns the counts so far.
func (m *mixer[T]) Stats() MixingStats { return m.stats }

// Deadline returns when the machine wants a Tick, if it does.
func (m *mixer[T]) Deadline() (time.Time, bool) {
	var first time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if m.state == stateNotStarted || m.state == stateDone {
		return first, false
	}
	if m.state == stateJoining || m.state == stateDraining || m.state == stateWaiting && m.cfg.SnapshotTimeout > 0 {
		sooner(m.stateEndsAt)
	}
	if m.state != stateWaiting && m.state != stateComputing {
		sooner(m.repeatAt)
	}
	for _, e := range m.edges {
		if e.lacksTheirSnapshot() {
			sooner(e.nextRequestAt)
		}
	}
	return first, !first.IsZero()
}

// Step takes one event and returns the effects to carry out, in order.
func (m *mixer[T]) Step(now time.Time, ev Event) []Effect {
	m.effects = nil
	switch ev := ev.(type) {
	case Start:
		m.startMixing(now)
	case LocalStepTaken:
		m.endLocalStep(now)
	case snapshotReceived[T]:
		m.handleSnapshot(ev)
	case snapshotRequested:
		m.handleSnapshotRequest(ev)
	case neighborFinished:
		m.handleNeighborFinished(ev)
	case neighborGreeted:
		m.handleGreeting(ev)
	case Tick:
	default:
		panic(fmt.Sprintf("d2d: event %T", ev))
	}
	m.advanceState(now)
	m.requestLateSnapshots(now)
	return m.effects
}

func (m *mixer[T]) emitEffect(e Effect) { m.effects = append(m.effects, e) }

func (m *mixer[T]) edgeToNeighbor(id wire.AgentID) *mixingEdge[T] {
	i := sort.Search(len(m.edges), func(i int) bool { return m.edges[i].id >= id })
	if i == len(m.edges) || m.edges[i].id != id {
		return nil
	}
	return m.edges[i]
}

func (m *mixer[T]) startMixing(now time.Time) {
	if m.state != stateNotStarted {
		return
	}
	for _, e := range m.edges {
		if e.theirBoot == 0 || m.cfg.BlockSteps == 0 {
			m.emitEffect(sendGreeting{e.receiverForSnapshot(0)})
		}
	}
	if m.cfg.JoinTimeout > 0 && len(m.edges) > 0 {
		m.state, m.stateEndsAt, m.repeatAt = stateJoining, now.Add(m.cfg.JoinTimeout), now
		return
	}
	m.beginLocalStep()
}

// minSnapshotsToJoin is of how many neighbours the snapshots tell where to begin: of fewer, one that lies would.
const minSnapshotsToJoin = 3

// joinFromSnapshots begins with the median, by coordinate, of the snapshots that neighbours have sent to this start of
// the program: when all have come, or at least 3 have and no more come within the repeat interval. Without so many it
// begins with what it has at the deadline, or at once where it has no 3 neighbours. Until then it asks every neighbour:
// an ask makes the other end restart the edge, if the greeting has not.
func (m *mixer[T]) joinFromSnapshots(now time.Time) {
	var sent [][]T
	for _, e := range m.edges {
		if e.theirNextParameters != nil {
			sent = append(sent, e.theirNextParameters)
		}
	}
	if soon := now.Add(m.cfg.RepeatInterval); len(sent) >= minSnapshotsToJoin && soon.Before(m.stateEndsAt) {
		m.stateEndsAt = soon
	}
	if len(m.edges) < minSnapshotsToJoin || len(sent) == len(m.edges) || !now.Before(m.stateEndsAt) {
		if len(sent) >= minSnapshotsToJoin {
			setCoordinateMedians(m.parameters, sent)
			m.stats.JoinedFromSnapshots = true
			if m.cfg.Trace != nil {
				m.cfg.Trace.MixingStarts(m.cfg.Boot, m.parameters)
			}
		}
		m.beginLocalStep()
		return
	}
	if !now.Before(m.repeatAt) {
		m.repeatAt = now.Add(m.cfg.RepeatInterval)
		for _, e := range m.edges {
			m.emitEffect(requestSnapshot{e.receiverForSnapshot(1)})
		}
	}
}

// setCoordinateMedians overwrites dst with the median of each coordinate: of an even number the mean of the middle two.
func setCoordinateMedians[T wire.Float](dst []T, of [][]T) {
	column := make([]T, len(of))
	for i := range dst {
		for k, x := range of {
			column[k] = x[i]
		}
		slices.Sort(column)
		n := len(column)
		if dst[i] = column[n/2]; n%2 == 0 {
			dst[i] = column[n/2-1]/2 + column[n/2]/2
		}
	}
}

// beginLocalStep begins a local step.
func (m *mixer[T]) beginLocalStep() {
	m.state = stateComputing
	m.step++
	if m.cfg.Trace != nil {
		m.cfg.Trace.StepBegins()
	}
	m.emitEffect(computeLocalStep{m.step})
}

// endLocalStep sends a snapshot of the half-step on every edge that can carry one.
func (m *mixer[T]) endLocalStep(now time.Time) {
	if m.state != stateComputing {
		return
	}
	m.stats.LocalSteps++
	if m.cfg.Trace != nil {
		m.cfg.Trace.StepEnds()
	}
	m.state, m.stateEndsAt = stateWaiting, now.Add(m.cfg.SnapshotTimeout)
	if m.step == 1 {
		m.stateEndsAt = now.Add(max(m.cfg.SnapshotTimeout, m.cfg.DrainTimeout))
	}
	s := &parameterSnapshot[T]{step: m.step}
	var to []edgeReceiver
	for _, e := range m.edges {
		if !e.canSendSnapshot() {
			m.stats.SkippedSnapshots++
			continue
		}
		m.detachSnapshot(&e.previousSnapshot)
		e.previousSnapshot, e.ownSnapshot = e.ownSnapshot, s
		s.edgeCount++
		e.seq++
		e.theirParameters, e.theirNextParameters = e.theirNextParameters, nil
		e.snapshotRequests, e.nextRequestAt = 0, now.Add(m.cfg.RepeatInterval)
		if e.seq == 1 { // it was probably sent before this agent had subscribed
			e.nextRequestAt = now.Add(m.cfg.RepeatInterval / 8)
		}
		m.dropUnneededSnapshots(e)
		to = append(to, e.receiverForSnapshot(e.seq))
	}
	if len(to) == 0 {
		return
	}
	s.parameters = m.copyParameters()
	if m.cfg.Quantize != nil {
		m.cfg.Quantize(s.parameters)
	}
	m.emitEffect(sendSnapshot[T]{m.step, s.parameters, to})
}

// advanceState goes on until it must wait for the host or a neighbour.
func (m *mixer[T]) advanceState(now time.Time) {
	switch m.state {
	case stateJoining:
		m.joinFromSnapshots(now)
	case stateWaiting:
		if m.mustWaitForNeighbors(now) {
			return
		}
		m.applyReadyFlows()
		if m.step != m.cfg.BlockSteps {
			m.beginLocalStep()
			return
		}
		m.state, m.stateEndsAt, m.repeatAt = stateDraining, now.Add(m.cfg.DrainTimeout), now.Add(m.cfg.RepeatInterval)
		for _, e := range m.edges { // also on drained edges: the other end waits for it
			m.emitFinish(e)
		}
		m.advanceDraining(now)
	case stateDraining:
		m.applyReadyFlows()
		m.advanceDraining(now)
	}
}

// mustWaitForNeighbors reports whether the step still waits for a neighbour. At the deadline it ends the wait, and
// later steps no longer wait for neighbours that have been silent for Patience waits in a row.
func (m *mixer[T]) mustWaitForNeighbors(now time.Time) bool {
	late := func(e *mixingEdge[T]) bool { return e.stepsWaitForIt && e.lacksTheirSnapshot() }
	if !slices.ContainsFunc(m.edges, late) {
		return false
	}
	if m.cfg.SnapshotTimeout == 0 || now.Before(m.stateEndsAt) {
		return true
	}
	m.stats.TimedOutWaits++
	for _, e := range m.edges {
		if late(e) {
			e.silentWaits++
			e.stepsWaitForIt = e.silentWaits < m.cfg.MaxSilentWaits
		}
	}
	return false
}

// applyReadyFlows adds each flow whose two snapshots are here, in the order of the neighbours' ids.
func (m *mixer[T]) applyReadyFlows() {
	for _, e := range m.edges {
		if !e.hasBothSnapshots() {
			continue
		}
		w := e.clippedWeight()
		if w != 0 {
			AddParameterFlow(m.parameters, w, e.ownSnapshot.parameters, e.theirParameters)
		}
		late := e.ownSnapshot.step < m.step || m.state == stateDraining
		if m.cfg.Trace != nil {
			m.cfg.Trace.FlowApplied(e.id, e.theirBoot, w, e.ownSnapshot.parameters, e.theirParameters, late)
		}
		if m.stats.AppliedFlows++; late {
			m.stats.LateFlows++
		}
		e.appliedFlows = e.seq
		m.recycleSnapshotBuffer(&e.theirParameters)
		m.dropUnneededSnapshots(e)
	}
}

// advanceDraining repeats finish until no flow can come or the time is over.
func (m *mixer[T]) advanceDraining(now time.Time) {
	over := !now.Before(m.stateEndsAt)
	if again := !now.Before(m.repeatAt); again && !over {
		m.repeatAt = now.Add(m.cfg.RepeatInterval)
		for _, e := range m.edges {
			if !e.isDrained() {
				m.emitFinish(e)
			}
		}
	}
	if open := slices.ContainsFunc(m.edges,
		func(e *mixingEdge[T]) bool { return !e.isDrained() && e.seq > 0 }); open && !over {
		return
	}
	for _, e := range m.edges {
		if e.isUnreconciled() {
			m.stats.UnreconciledEdges++
		}
	}
	m.state = stateDone
	m.emitEffect(mixingEnded{m.stats, m.takeEdgeMeasurements()})
}

func (m *mixer[T]) emitFinish(e *mixingEdge[T]) {
	m.emitEffect(sendFinish{Receiver: e.receiverForSnapshot(e.seq), AppliedFlowSeq: e.appliedFlows,
		IsEdgeDrained: e.isDrained()})
}

// requestLateSnapshots asks for the snapshots that are late.
func (m *mixer[T]) requestLateSnapshots(now time.Time) {
	if m.state == stateDone {
		return
	}
	for _, e := range m.edges {
		if e.lacksTheirSnapshot() && !now.Before(e.nextRequestAt) {
			e.snapshotRequests++
			e.nextRequestAt = now.Add(m.cfg.RepeatInterval << max(0, min(e.snapshotRequests-4, 4)))
			m.stats.RequestedSnapshots++
			m.emitEffect(requestSnapshot{e.receiverForSnapshot(e.seq)})
		}
	}
}
