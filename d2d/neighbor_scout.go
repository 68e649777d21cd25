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
	Location  wire.Location
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
	minBeaconInterval      = 10 * time.Second // in a small cell; the time grows with the cell
	beaconDoublingAgents   = 16               // other agents that double it
	maxNewcomerAnswerDelay = time.Second      // within which a newcomer is answered
	maxMissedBeacons       = 3                // beacons in a row, after which their sender counts as gone
	maxBeaconInterval      = 10 * time.Minute // time to the next one that a beacon may claim
	maxChoicesPerBeacon    = 10               // choices of the edges between two beacons, at most
)

// Scout finds an agent's neighbours: it announces the agent to the others of its cell, measures the round-trip time to
// each of them, and chooses the edges.
//
// There is one kind of message, the beacon, which the whole cell receives. It lists, for each other agent, the stamp of
// its newest beacon and how long ago that came. An agent that finds its own stamp there knows the round-trip time: now
// − stamp − held. A beacon that the broker has retained proves nothing; its sender counts after a live one.
type Scout struct {
	cfg            ScoutConfig
	began          time.Time // at stamp zero of this agent
	others         map[wire.AgentID]*otherAgent
	nextBeaconAt   time.Time // of the own beacon; zero while the link is down
	edgeChoiceAt   time.Time // when the edges are chosen again; zero while there is no news
	lastBeacon     wire.Beacon
	lastChoice     []wire.AgentID
	reportedChoice []wire.AgentID
	out            []Effect
}

// otherAgent is another agent of the cell.
type otherAgent struct {
	boot             wire.Epoch
	beaconReceivedAt time.Time // when its newest beacon came; zero if only a retained one has
	aliveUntil       time.Time // when it stops being alive
	beacon           wire.Beacon
	rtt              time.Duration // round-trip time; 0 = not known
	reportedRTT      time.Duration // rtt in the own beacons; it changes when rtt has doubled or halved
}

// Events and effects of a Scout; it takes Tick, too.
type (
	// LinkChanged reports whether the broker is connected.
	LinkChanged struct{ Up bool }
	// BeaconReceived is a message on an agent's beacon topic; it is empty if the agent has deleted its beacon.
	BeaconReceived struct {
		From     wire.AgentID // whose topic it is
		Payload  []byte
		Retained bool // kept by the broker, of unknown age
	}
	// AttestationReceived reports that this agent has got something to prove its beacons with.
	AttestationReceived struct{}
	// PublishBeacon asks the host to publish the agent's beacon, retained.
	PublishBeacon struct{ Payload []byte }
	// NeighborsChosen has the neighbours that the agent would mix with, in id order, when they have changed.
	NeighborsChosen struct {
		Neighbors   []wire.AgentID
		OtherAgents int // agents of the cell that are alive
	}
	// BeaconRejected: a beacon was not used, and why.
	BeaconRejected struct {
		From wire.AgentID
		Err  error
	}
)

func (LinkChanged) event()         {}
func (BeaconReceived) event()      {}
func (AttestationReceived) event() {}
func (PublishBeacon) effect()      {}
func (NeighborsChosen) effect()    {}
func (BeaconRejected) effect()     {}

// NewScout returns a Scout that waits for its link. It panics if cfg is not valid.
func NewScout(cfg ScoutConfig) *Scout {
	if cfg.Boot == 0 || cfg.MaxDegree < 1 || cfg.MaxDegree > wire.MaxNeighbors || cfg.Rand == nil ||
		cfg.Sign == nil || cfg.Check == nil {
		panic(fmt.Sprintf("d2d: NewScout: Boot is %d, want at least 1; MaxDegree is %d, want 1 to %d; Rand, Sign and "+
			"Check must be there", cfg.Boot, cfg.MaxDegree, wire.MaxNeighbors))
	}
	return &Scout{cfg: cfg, others: map[wire.AgentID]*otherAgent{}}
}

// Deadline returns when the machine wants a Tick, if it does.
func (s *Scout) Deadline() (time.Time, bool) {
	if !s.edgeChoiceAt.IsZero() && s.edgeChoiceAt.Before(s.nextBeaconAt) {
		return s.edgeChoiceAt, true
	}
	return s.nextBeaconAt, !s.nextBeaconAt.IsZero()
}

// Step takes one event (Linked, Heard, Vouched or Tick) and returns the effects to carry out, in order: Beacon, Found
// and BeaconRejected.
func (s *Scout) Step(now time.Time, ev Event) []Effect {
	s.out = nil
	if s.began.IsZero() {
		s.began = now.Add(-time.Second) // so that no stamp is 0
	}
	switch ev := ev.(type) {
	case LinkChanged:
		s.nextBeaconAt, s.edgeChoiceAt = time.Time{}, time.Time{}
		if ev.Up {
			s.nextBeaconAt = now
		}
	case BeaconReceived:
		if err := s.receiveBeacon(now, ev); err != nil {
			s.out = append(s.out, BeaconRejected{ev.From, err})
		}
	case AttestationReceived:
		if !s.nextBeaconAt.IsZero() {
			s.nextBeaconAt = now
		}
	case Tick:
	default:
		panic(fmt.Sprintf("d2d: event %T", ev))
	}
	if !s.nextBeaconAt.IsZero() && !now.Before(s.nextBeaconAt) {
		s.sendBeacon(now)
	}
	if !s.edgeChoiceAt.IsZero() && !now.Before(s.edgeChoiceAt) {
		s.chooseEdges(now)
	}
	return s.out
}

// receiveBeacon takes another agent's beacon, or its deletion.
func (s *Scout) receiveBeacon(now time.Time, ev BeaconReceived) error {
	if ev.From == s.cfg.Self {
		return nil // its own beacon, from now or an earlier start
	}
	if len(ev.Payload) == 0 {
		if o := s.others[ev.From]; o != nil {
			o.aliveUntil = now // it leaves
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
		*o = otherAgent{boot: head.Boot}
	}
	if ev.Retained || beacon.SentAtMicros <= o.beacon.SentAtMicros {
		return nil // of unknown age, or heard before
	}
	if !o.alive(now) {
		s.advanceBeacon(now)
	}
	within := min(time.Duration(beacon.NextBeaconMillis)*time.Millisecond, maxBeaconInterval)
	o.beaconReceivedAt, o.aliveUntil, o.beacon = now, now.Add(maxMissedBeacons*within), beacon
	s.updateRTT(now, o)
	s.planEdgeChoice(now)
	return nil
}

// planEdgeChoice has the edges chosen again soon.
func (s *Scout) planEdgeChoice(now time.Time) {
	if s.edgeChoiceAt.IsZero() && !s.nextBeaconAt.IsZero() {
		s.edgeChoiceAt = now.Add(beaconInterval(len(s.others)) / maxChoicesPerBeacon)
	}
}

// beaconInterval is the time between beacons in a cell with this many others. It grows with them, as a beacon does.
func beaconInterval(others int) time.Duration {
	return minBeaconInterval + minBeaconInterval*time.Duration(others)/beaconDoublingAgents
}

// other returns the entry of an agent, and makes one if there is none. In a full cell, entries of agents that are no
// longer alive are removed.
func (s *Scout) other(now time.Time, id wire.AgentID) (*otherAgent, error) {
	o := s.others[id]
	if o != nil {
		return o, nil
	}
	if len(s.others) == wire.MaxPeerEchoes {
		maps.DeleteFunc(s.others, func(_ wire.AgentID, o *otherAgent) bool { return !o.alive(now) })
	}
	if len(s.others) == wire.MaxPeerEchoes {
		return nil, fmt.Errorf("there are more than %d other agents in the cell: split the cell", wire.MaxPeerEchoes)
	}
	o = &otherAgent{}
	s.others[id] = o
	return o, nil
}

func (o *otherAgent) alive(now time.Time) bool { return now.Before(o.aliveUntil) }

// advanceBeacon brings the next beacon forward, since a newcomer waits for its stamp.
func (s *Scout) advanceBeacon(now time.Time) {
	soon := now.Add(time.Duration(s.cfg.Rand.Int64N(int64(maxNewcomerAnswerDelay))))
	if !s.nextBeaconAt.IsZero() && soon.Before(s.nextBeaconAt) {
		s.nextBeaconAt = soon
	}
}

// updateRTT takes the round-trip time from the answer to an own beacon. It follows a shorter time at once and a longer
// one slowly: the time above the shortest is spent in queues.
func (s *Scout) updateRTT(now time.Time, o *otherAgent) {
	i, found := slices.BinarySearchFunc(o.beacon.PeerEchoes, s.cfg.Self, compareHeardID)
	if !found || o.beacon.PeerEchoes[i].Boot != s.cfg.Boot {
		return
	}
	h := &o.beacon.PeerEchoes[i]
	sent := s.began.Add(time.Duration(h.BeaconSentAtMicros) * time.Microsecond)
	rtt := now.Sub(sent) - time.Duration(h.HoldMicros)*time.Microsecond
	if h.BeaconSentAtMicros > uint64(now.Sub(s.began).Microseconds()) || rtt < 0 {
		return // not an own stamp
	}
	rtt = max(rtt, time.Microsecond)
	if o.rtt == 0 {
		s.advanceBeacon(now) // the others need it for their choice
	}
	if o.rtt == 0 || rtt < o.rtt {
		o.rtt = rtt
	} else {
		o.rtt += (rtt - o.rtt) / 8
	}
}

func compareHeardID(h wire.PeerEcho, id wire.AgentID) int {
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
	s.nextBeaconAt = now.Add(beaconInterval(len(s.others)))
	s.lastBeacon = s.ownBeacon(now, alive)
	head := wire.PeerMessageHeader{Type: wire.PeerSignedBeacon, From: s.cfg.Self, Boot: s.cfg.Boot}
	payload := s.cfg.Sign(wire.AppendBeacon(nil, head, &s.lastBeacon))
	if payload == nil {
		head.Type = wire.PeerBeacon
		payload = wire.AppendBeacon(nil, head, &s.lastBeacon)
	}
	s.out = append(s.out, PublishBeacon{payload})
	s.planEdgeChoice(now) // others may have become silent
}

// chooseEdges chooses the edges from the newest beacons. A choice made twice in a row is stable, and is reported.
func (s *Scout) chooseEdges(now time.Time) {
	s.edgeChoiceAt = time.Time{}
	alive := s.alive(now)
	chosen := s.choose(alive)
	switch {
	case !slices.Equal(chosen, s.lastChoice):
		s.lastChoice = chosen
		s.planEdgeChoice(now)
	case !slices.Equal(chosen, s.reportedChoice):
		s.reportedChoice = chosen
		s.out = append(s.out, NeighborsChosen{slices.Clone(chosen), len(alive)})
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

// ownBeacon returns the own beacon: the agent's knowledge of the others.
func (s *Scout) ownBeacon(now time.Time, alive []wire.AgentID) wire.Beacon {
	b := wire.Beacon{
		NextBeaconMillis: uint32(beaconInterval(len(s.others)).Milliseconds()),
		SentAtMicros:     uint64(now.Sub(s.began).Microseconds()),
		MaxNeighbors:     uint16(s.cfg.MaxDegree), Location: s.cfg.Location,
	}
	for _, id := range alive {
		o := s.others[id]
		if o.reportedRTT == 0 || o.rtt > 2*o.reportedRTT || 2*o.rtt < o.reportedRTT {
			o.reportedRTT = o.rtt
		}
		b.PeerEchoes = append(b.PeerEchoes, wire.PeerEcho{
			PeerAddress: wire.PeerAddress{ID: id, Boot: o.boot}, BeaconSentAtMicros: o.beacon.SentAtMicros,
			HoldMicros: micros(now.Sub(o.beaconReceivedAt)), RTT: micros(o.reportedRTT),
		})
	}
	return b
}

// micros returns a time in microseconds, at most the largest uint32 (71 minutes).
func micros(d time.Duration) uint32 { return uint32(min(d.Microseconds(), 1<<32-1)) }
