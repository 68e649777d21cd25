package d2d

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// ScoutConfig describes the agent that looks for neighbours.
type ScoutConfig struct {
	Self      wire.AgentID
	Boot      wire.Epoch // of this agent
	Place     wire.Location
	MaxDegree int // most neighbours that this agent takes
	// Sign completes the message of a signed beacon; nil while this agent has nothing to prove its beacons with. Then
	// they are not signed, and it hears others' that are not, either.
	Sign func(message []byte) []byte
	// Check returns why a beacon is not taken; proof is nil if it is not signed.
	Check func(from wire.AgentID, proof *wire.BeaconProof) error
	Rand  *rand.Rand // spreads the answers to a newcomer
}

// The times of beacons.
const (
	beaconEvery   = 10 * time.Second // in a small cell; the time grows with the cell
	beaconCell    = 16               // other agents that double it
	beaconAnswer  = time.Second      // within which a newcomer is answered
	beaconMissing = 3                // beacons in a row, after which their sender counts as gone
	beaconLongest = 10 * time.Minute // time to the next one that a beacon may claim
	choicesEvery  = 10               // choices of the edges between two beacons, at most
)

// Scout finds an agent's neighbours: it announces the agent to the others of its cell, measures the round-trip time to
// each of them, and chooses the edges.
//
// There is one kind of message, the beacon, which the whole cell receives. It lists, for each other agent, the stamp of
// its newest beacon and how long ago that came. An agent that finds its own stamp there knows the round-trip time: now
// − stamp − held. A beacon that the broker has retained proves nothing; its sender counts after a live one.
type Scout struct {
	cfg    ScoutConfig
	began  time.Time // at stamp zero of this agent
	others map[wire.AgentID]*other
	next   time.Time // of the own beacon; zero while the link is down
	look   time.Time // when the edges are chosen again; zero while there is no news
	told   wire.Beacon
	last   []wire.AgentID
	chosen []wire.AgentID
	out    []Effect
}

// other is another agent of the cell.
type other struct {
	boot   wire.Epoch
	at     time.Time // when its newest beacon came; zero if only a retained one has
	until  time.Time // when it stops being alive
	beacon wire.Beacon
	rtt    time.Duration // round-trip time; 0 = not known
	told   time.Duration // rtt in the own beacons; it changes when rtt has doubled or halved
}

// Events and effects of a Scout; it takes Tick, too.
type (
	// Linked reports whether the broker is connected.
	Linked struct{ Up bool }
	// Heard is a message on an agent's beacon topic; it is empty if the agent has deleted its beacon.
	Heard struct {
		From     wire.AgentID // whose topic it is
		Payload  []byte
		Retained bool // kept by the broker, of unknown age
	}
	// Vouched reports that this agent has got something to prove its beacons with.
	Vouched struct{}
	// Beacon asks the host to publish the agent's beacon, retained.
	Beacon struct{ Payload []byte }
	// Found has the neighbours that the agent would mix with, in id order, when they have changed.
	Found struct {
		Neighbors []wire.AgentID
		Others    int // agents of the cell that are alive
	}
	// BeaconRejected: a beacon was not used, and why.
	BeaconRejected struct {
		From wire.AgentID
		Err  error
	}
)

func (Linked) event()          {}
func (Heard) event()           {}
func (Vouched) event()         {}
func (Beacon) effect()         {}
func (Found) effect()          {}
func (BeaconRejected) effect() {}

// NewScout returns a Scout that waits for its link. It panics if cfg is not valid.
func NewScout(cfg ScoutConfig) *Scout {
	if cfg.Boot == 0 || cfg.MaxDegree < 1 || cfg.MaxDegree > wire.MaxNeighbors || cfg.Rand == nil ||
		cfg.Sign == nil || cfg.Check == nil {
		panic(fmt.Sprintf("d2d: NewScout: Boot is %d, want at least 1; MaxDegree is %d, want 1 to %d; Rand, Sign and "+
			"Check must be there", cfg.Boot, cfg.MaxDegree, wire.MaxNeighbors))
	}
	return &Scout{cfg: cfg, others: map[wire.AgentID]*other{}}
}

// Deadline returns when the machine wants a Tick, if it does.
func (s *Scout) Deadline() (time.Time, bool) {
	if !s.look.IsZero() && s.look.Before(s.next) {
		return s.look, true
	}
	return s.next, !s.next.IsZero()
}

// Step takes one event (Linked, Heard, Vouched or Tick) and returns the effects to carry out, in order: Beacon, Found
// and BeaconRejected.
func (s *Scout) Step(now time.Time, ev Event) []Effect {
	s.out = nil
	if s.began.IsZero() {
		s.began = now.Add(-time.Second) // so that no stamp is 0
	}
	switch ev := ev.(type) {
	case Linked:
		s.next, s.look = time.Time{}, time.Time{}
		if ev.Up {
			s.next = now
		}
	case Heard:
		if err := s.hear(now, ev); err != nil {
			s.out = append(s.out, BeaconRejected{ev.From, err})
		}
	case Vouched:
		if !s.next.IsZero() {
			s.next = now
		}
	case Tick:
	default:
		panic(fmt.Sprintf("d2d: event %T", ev))
	}
	if !s.next.IsZero() && !now.Before(s.next) {
		s.sendBeacon(now)
	}
	if !s.look.IsZero() && !now.Before(s.look) {
		s.decide(now)
	}
	return s.out
}

// hear takes another agent's beacon, or its deletion.
func (s *Scout) hear(now time.Time, ev Heard) error {
	if ev.From == s.cfg.Self {
		return nil // its own beacon, from now or an earlier start
	}
	if len(ev.Payload) == 0 {
		if o := s.others[ev.From]; o != nil {
			o.until = now // it leaves
		}
		return nil
	}
	head, beacon, proof, err := wire.DecodeBeacon(ev.Payload)
	if err != nil {
		return err
	}
	if head.From != ev.From {
		return fmt.Errorf("a beacon of %q on the topic of %q", head.From, ev.From)
	}
	if err := s.cfg.Check(ev.From, proof); err != nil {
		return err
	}
	o, err := s.other(now, ev.From)
	if err != nil {
		return err
	}
	switch {
	case head.Boot < o.boot:
		return nil // of an earlier start
	case head.Boot > o.boot:
		*o = other{boot: head.Boot}
	}
	if ev.Retained || beacon.Stamp <= o.beacon.Stamp {
		return nil // of unknown age, or heard before
	}
	if !o.alive(now) {
		s.answer(now)
	}
	within := min(time.Duration(beacon.Next)*time.Millisecond, beaconLongest)
	o.at, o.until, o.beacon = now, now.Add(beaconMissing*within), beacon
	s.measure(now, o)
	s.news(now)
	return nil
}

// news has the edges chosen again soon.
func (s *Scout) news(now time.Time) {
	if s.look.IsZero() && !s.next.IsZero() {
		s.look = now.Add(interval(len(s.others)) / choicesEvery)
	}
}

// interval is the time between beacons in a cell with this many others. It grows with them, as a beacon does.
func interval(others int) time.Duration {
	return beaconEvery + beaconEvery*time.Duration(others)/beaconCell
}

// other returns the entry of an agent, and makes one if there is none. In a full cell, entries of agents that are no
// longer alive are removed.
func (s *Scout) other(now time.Time, id wire.AgentID) (*other, error) {
	o := s.others[id]
	if o != nil {
		return o, nil
	}
	if len(s.others) == wire.MaxHeard {
		maps.DeleteFunc(s.others, func(_ wire.AgentID, o *other) bool { return !o.alive(now) })
	}
	if len(s.others) == wire.MaxHeard {
		return nil, fmt.Errorf("there are more than %d other agents in the cell: split the cell", wire.MaxHeard)
	}
	o = &other{}
	s.others[id] = o
	return o, nil
}

func (o *other) alive(now time.Time) bool { return now.Before(o.until) }

// answer brings the next beacon forward, since a newcomer waits for its stamp.
func (s *Scout) answer(now time.Time) {
	soon := now.Add(time.Duration(s.cfg.Rand.Int64N(int64(beaconAnswer))))
	if !s.next.IsZero() && soon.Before(s.next) {
		s.next = soon
	}
}

// measure takes the round-trip time from the answer to an own beacon. It follows a shorter time at once and a longer
// one slowly: the time above the shortest is spent in queues.
func (s *Scout) measure(now time.Time, o *other) {
	i, found := slices.BinarySearchFunc(o.beacon.Heard, s.cfg.Self, byHeard)
	if !found || o.beacon.Heard[i].Boot != s.cfg.Boot {
		return
	}
	h := &o.beacon.Heard[i]
	sent := s.began.Add(time.Duration(h.Stamp) * time.Microsecond)
	rtt := now.Sub(sent) - time.Duration(h.Held)*time.Microsecond
	if h.Stamp > uint64(now.Sub(s.began).Microseconds()) || rtt < 0 {
		return // not an own stamp
	}
	rtt = max(rtt, time.Microsecond)
	if o.rtt == 0 {
		s.answer(now) // the others need it for their choice
	}
	if o.rtt == 0 || rtt < o.rtt {
		o.rtt = rtt
	} else {
		o.rtt += (rtt - o.rtt) / 8
	}
}

func byHeard(h wire.Heard, id wire.AgentID) int {
	if h.ID < id {
		return -1
	} else if h.ID > id {
		return 1
	}
	return 0
}

// sendBeacon publishes the own beacon, and plans the next.
func (s *Scout) sendBeacon(now time.Time) {
	alive := s.alive(now)
	s.next = now.Add(interval(len(s.others)))
	s.told = s.row(now, alive)
	head := wire.PeerHead{Type: wire.PeerSignedBeacon, From: s.cfg.Self, Boot: s.cfg.Boot}
	payload := s.cfg.Sign(wire.AppendBeacon(nil, head, &s.told))
	if payload == nil {
		head.Type = wire.PeerBeacon
		payload = wire.AppendBeacon(nil, head, &s.told)
	}
	s.out = append(s.out, Beacon{payload})
	s.news(now) // others may have become silent
}

// decide chooses the edges from the newest beacons. A choice made twice in a row is stable, and is reported.
func (s *Scout) decide(now time.Time) {
	s.look = time.Time{}
	alive := s.alive(now)
	chosen := s.choose(alive)
	switch {
	case !slices.Equal(chosen, s.last):
		s.last = chosen
		s.news(now)
	case !slices.Equal(chosen, s.chosen):
		s.chosen = chosen
		s.out = append(s.out, Found{slices.Clone(chosen), len(alive)})
	}
}

// alive returns, in id order, the agents of the cell that are alive.
func (s *Scout) alive(now time.Time) []wire.AgentID {
	var ids []wire.AgentID
	for _, id := range slices.Sorted(maps.Keys(s.others)) {
		if s.others[id].alive(now) {
			ids = append(ids, id)
		}
	}
	return ids
}

// row returns the own beacon: the agent's knowledge of the others.
func (s *Scout) row(now time.Time, alive []wire.AgentID) wire.Beacon {
	b := wire.Beacon{
		Next: uint32(interval(len(s.others)).Milliseconds()), Stamp: uint64(now.Sub(s.began).Microseconds()),
		Degree: uint16(s.cfg.MaxDegree), Location: s.cfg.Place,
	}
	for _, id := range alive {
		o := s.others[id]
		if o.told == 0 || o.rtt > 2*o.told || 2*o.rtt < o.told {
			o.told = o.rtt
		}
		b.Heard = append(b.Heard, wire.Heard{
			PeerAddress: wire.PeerAddress{ID: id, Boot: o.boot}, Stamp: o.beacon.Stamp,
			Held: micros(now.Sub(o.at)), RTT: micros(o.told),
		})
	}
	return b
}

// micros returns a time in microseconds, at most the largest uint32 (71 minutes).
func micros(d time.Duration) uint32 { return uint32(min(d.Microseconds(), 1<<32-1)) }
