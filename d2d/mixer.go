package d2d

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// mixer mixes one agent's parameters with its neighbours' parameters, step by step.
type mixer[T wire.Float] struct {
	cfg         MixingConfig[T]
	parameters  []T
	edges       []*mixingEdge[T] // edges in ascending order of id
	state       mixerState
	step        uint64    // number of the current local step, counted from 1
	stateEndsAt time.Time // deadline of the current state: joining, waiting or draining
	repeatAt    time.Time // time at which requests (while joining) or finish messages (while draining) are sent again
	freeBuffers [][]T
	effects     []Effect
	stats       MixingStats
}

type mixerState uint8

const (
	stateNotStarted mixerState = iota
	stateJoining               // waits for snapshots of neighbours, from which the first step starts
	stateComputing             // waits for the host to compute the local step
	stateWaiting               // waits for snapshots of neighbours after the local step
	stateDraining              // all steps are done, but snapshots may still arrive and be applied
	stateDone
)

// newMixer returns a mixer that mixes the parameters x in place. The host owns x while it performs computeLocalStep;
// otherwise the mixer owns x until mixingEnded. newMixer panics if cfg is invalid.
func newMixer[T wire.Float](cfg MixingConfig[T], x []T) *mixer[T] {
	if err := cfg.Validate(); err != nil {
		panic("d2d: newMixer: " + err.Error())
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

// Stats returns the current counters.
func (m *mixer[T]) Stats() MixingStats { return m.stats }

// Deadline returns the time at which the caller must deliver the next Tick. It returns false if no Tick is needed.
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

// Step processes one event and returns the effects that the caller must perform, in order.
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
		panic(fmt.Sprintf("d2d: unexpected event %T", ev))
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

// minSnapshotsToJoin is the minimum number of neighbours' snapshots from whose median an agent may start. With fewer
// snapshots, a single malicious neighbour could determine the median.
const minSnapshotsToJoin = 3

// joinFromSnapshots begins the block with the coordinate-wise median of the neighbours' snapshots. It waits until all
// snapshots have arrived, or until at least 3 have arrived and no more arrive within the repeat interval. The agent
// begins with its own parameters if it has fewer than 3 neighbours, or fewer than 3 snapshots at the deadline. While
// the agent waits, it sends requests. A request makes the other end reset the edge if the greeting was lost.
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

// setCoordinateMedians sets dst to the coordinate-wise median of several vectors. For an even number of vectors, the
// median is the mean of the middle two values.
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

func (m *mixer[T]) beginLocalStep() {
	m.state = stateComputing
	m.step++
	if m.cfg.Trace != nil {
		m.cfg.Trace.StepBegins()
	}
	m.emitEffect(computeLocalStep{m.step})
}

// endLocalStep sends a snapshot of the parameters after a local step, on every edge that is ready for a new snapshot.
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
		if e.seq == 1 {
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

// advanceState advances the mixer until it must wait for the host or a neighbour.
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
		for _, e := range m.edges {
			m.emitFinish(e)
		}
		m.advanceDraining(now)
	case stateDraining:
		m.applyReadyFlows()
		m.advanceDraining(now)
	}
}

// mustWaitForNeighbors reports whether the current step must still wait for a neighbour. At the deadline it ends the
// wait. Later steps then do not wait for neighbours that were silent in MaxSilentWaits consecutive waits.
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

// applyReadyFlows applies each flow for which both snapshots are available, in the order of the neighbours' ids.
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

// advanceDraining repeats finish messages until all edges are drained (both ends have applied all flows) or the time
// for draining is over.
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
