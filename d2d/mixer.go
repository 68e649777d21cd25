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
	cfg   Config[T]
	x     []T
	edges []*edge[T] // ascending by id
	state state
	step  uint64    // the local step under way, from 1
	until time.Time // end of joining, waiting or draining
	tell  time.Time // when ask, in joining, or finish is repeated
	free  [][]T
	out   []Effect
	stats Stats
}

type state uint8

const (
	fresh     state = iota
	joining         // waits for neighbours' snapshots to begin with
	computing       // the host takes the local step
	waiting         // for snapshots from the neighbours
	draining        // all steps are taken, flows may still come
	done
)

// newMixer returns a mixer that mixes x in place. x belongs to the host while compute is under way, and to the mixer
// from then until ended. newMixer panics if cfg is not valid.
func newMixer[T wire.Float](cfg Config[T], x []T) *mixer[T] {
	if err := cfg.Validate(); err != nil {
		panic("d2d: New: " + err.Error())
	}
	m := &mixer[T]{cfg: cfg, x: x}
	for _, n := range cfg.Neighbors {
		e := &edge[T]{id: n.ID, weight: T(n.Weight), clip: n.Clip, boot: n.Boot, waited: true}
		m.edges = append(m.edges, e)
	}
	if cfg.Trace != nil {
		cfg.Trace.Starts(cfg.Boot, x)
	}
	return m
}

// Stats returns the counts so far.
func (m *mixer[T]) Stats() Stats { return m.stats }

// Deadline returns when the machine wants a Tick, if it does.
func (m *mixer[T]) Deadline() (time.Time, bool) {
	var first time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if m.state == fresh || m.state == done {
		return first, false
	}
	if m.state == joining || m.state == draining || m.state == waiting && m.cfg.Wait > 0 {
		sooner(m.until)
	}
	if m.state != waiting && m.state != computing {
		sooner(m.tell)
	}
	for _, e := range m.edges {
		if e.missing() {
			sooner(e.askAt)
		}
	}
	return first, !first.IsZero()
}

// Step takes one event and returns the effects to carry out, in order.
func (m *mixer[T]) Step(now time.Time, ev Event) []Effect {
	m.out = nil
	switch ev := ev.(type) {
	case Start:
		m.start(now)
	case Stepped:
		m.stepped(now)
	case received[T]:
		m.received(ev)
	case asked:
		m.asked(ev)
	case finished:
		m.theyFinished(ev)
	case greeted:
		m.greeted(ev)
	case Tick:
	default:
		panic(fmt.Sprintf("d2d: event %T", ev))
	}
	m.proceed(now)
	m.ask(now)
	return m.out
}

func (m *mixer[T]) emit(e Effect) { m.out = append(m.out, e) }

func (m *mixer[T]) edge(id wire.AgentID) *edge[T] {
	i := sort.Search(len(m.edges), func(i int) bool { return m.edges[i].id >= id })
	if i == len(m.edges) || m.edges[i].id != id {
		return nil
	}
	return m.edges[i]
}

func (m *mixer[T]) start(now time.Time) {
	if m.state != fresh {
		return
	}
	for _, e := range m.edges {
		if e.boot == 0 || m.cfg.Steps == 0 {
			m.emit(greet{e.to(0)})
		}
	}
	if m.cfg.Join > 0 && len(m.edges) > 0 {
		m.state, m.until, m.tell = joining, now.Add(m.cfg.Join), now
		return
	}
	m.next()
}

// agreeing is of how many neighbours the snapshots tell where to begin: of fewer, one that lies would.
const agreeing = 3

// join begins with the median, by coordinate, of the snapshots that neighbours have sent to this start of the program:
// when all have come, or at least 3 have and no more come within the repeat interval. Without so many it begins
// with what it has at the deadline, or at once where it has no 3 neighbours. Until then it asks every neighbour: an ask
// makes the other end restart the edge, if the greeting has not.
func (m *mixer[T]) join(now time.Time) {
	var sent [][]T
	for _, e := range m.edges {
		if e.early != nil {
			sent = append(sent, e.early)
		}
	}
	if soon := now.Add(m.cfg.Repeat); len(sent) >= agreeing && soon.Before(m.until) {
		m.until = soon
	}
	if len(m.edges) < agreeing || len(sent) == len(m.edges) || !now.Before(m.until) {
		if len(sent) >= agreeing {
			medians(m.x, sent)
			m.stats.Joined = true
			if m.cfg.Trace != nil {
				m.cfg.Trace.Starts(m.cfg.Boot, m.x)
			}
		}
		m.next()
		return
	}
	if !now.Before(m.tell) {
		m.tell = now.Add(m.cfg.Repeat)
		for _, e := range m.edges {
			m.emit(ask{e.to(1)})
		}
	}
}

// medians overwrites dst with the median of each coordinate: of an even number the mean of the middle two.
func medians[T wire.Float](dst []T, of [][]T) {
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

// next begins a local step.
func (m *mixer[T]) next() {
	m.state = computing
	m.step++
	if m.cfg.Trace != nil {
		m.cfg.Trace.StepBegins()
	}
	m.emit(compute{m.step})
}

// stepped sends a snapshot of the half-step on every edge that can carry one.
func (m *mixer[T]) stepped(now time.Time) {
	if m.state != computing {
		return
	}
	m.stats.Steps++
	if m.cfg.Trace != nil {
		m.cfg.Trace.StepEnds()
	}
	m.state, m.until = waiting, now.Add(m.cfg.Wait)
	if m.step == 1 {
		m.until = now.Add(max(m.cfg.Wait, m.cfg.Drain))
	}
	s := &snapshot[T]{step: m.step}
	var to []to
	for _, e := range m.edges {
		if !e.idle() {
			m.stats.Skipped++
			continue
		}
		m.drop(&e.before)
		e.before, e.own = e.own, s
		s.edges++
		e.seq++
		e.theirs, e.early = e.early, nil
		e.asks, e.askAt = 0, now.Add(m.cfg.Repeat)
		if e.seq == 1 { // it was probably sent before this agent had subscribed
			e.askAt = now.Add(m.cfg.Repeat / 8)
		}
		m.trim(e)
		to = append(to, e.to(e.seq))
	}
	if len(to) == 0 {
		return
	}
	s.x = m.copyOfX()
	if m.cfg.Quantize != nil {
		m.cfg.Quantize(s.x)
	}
	m.emit(send[T]{m.step, s.x, to})
}

// proceed goes on until it must wait for the host or a neighbour.
func (m *mixer[T]) proceed(now time.Time) {
	switch m.state {
	case joining:
		m.join(now)
	case waiting:
		if m.mustWait(now) {
			return
		}
		m.apply()
		if m.step != m.cfg.Steps {
			m.next()
			return
		}
		m.state, m.until, m.tell = draining, now.Add(m.cfg.Drain), now.Add(m.cfg.Repeat)
		for _, e := range m.edges { // also on drained edges: the other end waits for it
			m.finish(e)
		}
		m.drain(now)
	case draining:
		m.apply()
		m.drain(now)
	}
}

// mustWait reports whether the step still waits for a neighbour. At the deadline it ends the wait, and later steps no
// longer wait for neighbours that have been silent for Patience waits in a row.
func (m *mixer[T]) mustWait(now time.Time) bool {
	late := func(e *edge[T]) bool { return e.waited && e.missing() }
	if !slices.ContainsFunc(m.edges, late) {
		return false
	}
	if m.cfg.Wait == 0 || now.Before(m.until) {
		return true
	}
	m.stats.Waits++
	for _, e := range m.edges {
		if late(e) {
			e.silent++
			e.waited = e.silent < m.cfg.Patience
		}
	}
	return false
}

// apply adds each flow whose two snapshots are here, in the order of the neighbours' ids.
func (m *mixer[T]) apply() {
	for _, e := range m.edges {
		if !e.whole() {
			continue
		}
		w := e.bounded()
		if w != 0 {
			AddFlow(m.x, w, e.own.x, e.theirs)
		}
		late := e.own.step < m.step || m.state == draining
		if m.cfg.Trace != nil {
			m.cfg.Trace.Flow(e.id, e.boot, w, e.own.x, e.theirs, late)
		}
		if m.stats.Flows++; late {
			m.stats.Late++
		}
		e.applied = e.seq
		m.recycle(&e.theirs)
		m.trim(e)
	}
}

// drain repeats finish until no flow can come or the time is over.
func (m *mixer[T]) drain(now time.Time) {
	over := !now.Before(m.until)
	if again := !now.Before(m.tell); again && !over {
		m.tell = now.Add(m.cfg.Repeat)
		for _, e := range m.edges {
			if !e.drained() {
				m.finish(e)
			}
		}
	}
	if open := slices.ContainsFunc(m.edges, func(e *edge[T]) bool { return !e.drained() && e.seq > 0 }); open && !over {
		return
	}
	for _, e := range m.edges {
		if e.open() {
			m.stats.Unreconciled++
		}
	}
	m.state = done
	m.emit(ended{m.stats, m.seen()})
}

func (m *mixer[T]) finish(e *edge[T]) {
	m.emit(finish{To: e.to(e.seq), Applied: e.applied, Drained: e.drained()})
}

// ask asks for the snapshots that are late.
func (m *mixer[T]) ask(now time.Time) {
	if m.state == done {
		return
	}
	for _, e := range m.edges {
		if e.missing() && !now.Before(e.askAt) {
			e.asks++
			e.askAt = now.Add(m.cfg.Repeat << max(0, min(e.asks-4, 4)))
			m.stats.Asked++
			m.emit(ask{e.to(e.seq)})
		}
	}
}
