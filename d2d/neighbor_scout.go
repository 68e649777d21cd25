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
	OwnID        wire.AgentID
	Boot         wire.Epoch // of this agent
	Location     wire.AgentLocation
	MaxNeighbors int // most neighbours that this agent takes
	// SignBeacon completes the message of a signed beacon; nil while this agent has nothing to prove its beacons with.
	// Then they are not signed, and it hears others' that are not, either.
	SignBeacon func(message []byte) []byte
	// CheckBeaconProof returns why a beacon is not taken; proof is nil if it is not signed.
	CheckBeaconProof func(from wire.AgentID, proof *wire.BeaconProof) error
	Rand             *rand.Rand // spreads the answers to a newcomer
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

// NeighborScout finds an agent's neighbours: it announces the agent to the others of its cell, measures the round-trip
// time to each of them, and chooses the edges.
//
// There is one kind of message, the beacon, which the whole cell receives. It lists, for each other agent, the stamp of
// its newest beacon and how long ago that came. An agent that finds its own stamp there knows the round-trip time: now
// − stamp − held. A beacon that the broker has retained proves nothing; its sender counts after a live one.
type NeighborScout struct {
	cfg                 ScoutConfig
	beaconClockStart    time.Time // at stamp zero of this agent
	otherAgentByID      map[wire.AgentID]*otherAgent
	nextBeaconAt        time.Time // of the own beacon; zero while the link is down
	nextEdgeChoiceAt    time.Time // when the edges are chosen again; zero while there is no news
	lastOwnBeacon       wire.Beacon
	lastChosenNeighbors []wire.AgentID
	reportedNeighbors   []wire.AgentID
	effects             []Effect
}

// otherAgent is another agent of the cell.
type otherAgent struct {
	boot             wire.Epoch
	beaconReceivedAt time.Time // when its newest beacon came; zero if only a retained one has
	aliveUntil       time.Time // when it stops being alive
	lastBeacon       wire.Beacon
	rtt              time.Duration // round-trip time; 0 = not known
	reportedRTT      time.Duration // rtt in the own beacons; it changes when rtt has doubled or halved
}

// Events and effects of a NeighborScout; it takes Tick, too.
type (
	// BrokerLinkChanged reports whether the broker is connected.
	BrokerLinkChanged struct{ IsConnected bool }
	// BeaconReceived is a message on an agent's beacon topic; it is empty if the agent has deleted its beacon.
	BeaconReceived struct {
		TopicOwner wire.AgentID // whose topic it is
		Payload    []byte
		IsRetained bool // kept by the broker, of unknown age
	}
	// AttestationReceived reports that this agent has got something to prove its beacons with.
	AttestationReceived struct{}
	// PublishBeacon asks the host to publish the agent's beacon, retained.
	PublishBeacon struct{ Payload []byte }
	// NeighborsChosen has the neighbours that the agent would mix with, in id order, when they have changed.
	NeighborsChosen struct {
		Neighbors            []wire.AgentID
		AliveOtherAgentCount int // agents of the cell that are alive
	}
	// BeaconRejected: a beacon was not used, and why.
	BeaconRejected struct {
		TopicOwner wire.AgentID
		Err        error
	}
)

func (BrokerLinkChanged) event()   {}
func (BeaconReceived) event()      {}
func (AttestationReceived) event() {}
func (PublishBeacon) effect()      {}
func (NeighborsChosen) effect()    {}
func (BeaconRejected) effect()     {}

// NewNeighborScout returns a NeighborScout that waits for its link. It panics if cfg is not valid.
func NewNeighborScout(cfg ScoutConfig) *NeighborScout {
	if cfg.Boot == 0 || cfg.MaxNeighbors < 1 || cfg.MaxNeighbors > wire.MaxNeighbors || cfg.Rand == nil ||
		cfg.SignBeacon == nil || cfg.CheckBeaconProof == nil {
		panic(fmt.Sprintf("d2d: NewScout: Boot is %d, want at least 1; MaxDegree is %d, want 1 to %d; Rand, Sign and "+
			"Check must be there", cfg.Boot, cfg.MaxNeighbors, wire.MaxNeighbors))
	}
	return &NeighborScout{cfg: cfg, otherAgentByID: map[wire.AgentID]*otherAgent{}}
}

// Deadline returns when the machine wants a Tick, if it does.
func (s *NeighborScout) Deadline() (time.Time, bool) {
	if !s.nextEdgeChoiceAt.IsZero() && s.nextEdgeChoiceAt.Before(s.nextBeaconAt) {
		return s.nextEdgeChoiceAt, true
	}
	return s.nextBeaconAt, !s.nextBeaconAt.IsZero()
}

// Step takes one event (BrokerLinkChanged, BeaconReceived, AttestationReceived or Tick) and returns the effects to
// carry out, in order: PublishBeacon, NeighborsChosen and BeaconRejected.
func (s *NeighborScout) Step(now time.Time, ev Event) []Effect {
	s.effects = nil
	if s.beaconClockStart.IsZero() {
		s.beaconClockStart = now.Add(-time.Second) // so that no stamp is 0
	}
	switch ev := ev.(type) {
	case BrokerLinkChanged:
		s.nextBeaconAt, s.nextEdgeChoiceAt = time.Time{}, time.Time{}
		if ev.IsConnected {
			s.nextBeaconAt = now
		}
	case BeaconReceived:
		if err := s.receiveBeacon(now, ev); err != nil {
			s.effects = append(s.effects, BeaconRejected{ev.TopicOwner, err})
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
		s.publishBeacon(now)
	}
	if !s.nextEdgeChoiceAt.IsZero() && !now.Before(s.nextEdgeChoiceAt) {
		s.chooseEdges(now)
	}
	return s.effects
}

// receiveBeacon takes another agent's beacon, or its deletion.
func (s *NeighborScout) receiveBeacon(now time.Time, ev BeaconReceived) error {
	if ev.TopicOwner == s.cfg.OwnID {
		return nil // its own beacon, from now or an earlier start
	}
	if len(ev.Payload) == 0 {
		if o := s.otherAgentByID[ev.TopicOwner]; o != nil {
			o.aliveUntil = now // it leaves
		}
		return nil
	}
	head, beacon, proof, err := wire.DecodeBeacon(ev.Payload)
	if err != nil {
		return err
	}
	if head.Sender != ev.TopicOwner {
		return fmt.Errorf("a beacon of %q on the topic of %q", head.Sender, ev.TopicOwner)
	}
	if err := s.cfg.CheckBeaconProof(ev.TopicOwner, proof); err != nil {
		return err
	}
	o, err := s.ensureOtherAgent(now, ev.TopicOwner)
	if err != nil {
		return err
	}
	switch {
	case head.SenderBootEpoch < o.boot:
		return nil // of an earlier start
	case head.SenderBootEpoch > o.boot:
		*o = otherAgent{boot: head.SenderBootEpoch}
	}
	if ev.IsRetained || beacon.SentAtMicros <= o.lastBeacon.SentAtMicros {
		return nil // of unknown age, or heard before
	}
	if !o.isAlive(now) {
		s.bringNextBeaconForward(now)
	}
	within := min(time.Duration(beacon.NextBeaconMillis)*time.Millisecond, maxBeaconInterval)
	o.beaconReceivedAt, o.aliveUntil, o.lastBeacon = now, now.Add(maxMissedBeacons*within), beacon
	s.updateRTT(now, o)
	s.scheduleEdgeChoice(now)
	return nil
}

// scheduleEdgeChoice has the edges chosen again soon.
func (s *NeighborScout) scheduleEdgeChoice(now time.Time) {
	if s.nextEdgeChoiceAt.IsZero() && !s.nextBeaconAt.IsZero() {
		s.nextEdgeChoiceAt = now.Add(beaconInterval(len(s.otherAgentByID)) / maxChoicesPerBeacon)
	}
}

// beaconInterval is the time between beacons in a cell with this many others. It grows with them, as a beacon does.
func beaconInterval(others int) time.Duration {
	return minBeaconInterval + minBeaconInterval*time.Duration(others)/beaconDoublingAgents
}

// ensureOtherAgent returns the entry of an agent, and makes one if there is none. In a full cell, entries of agents
// that are no longer alive are removed.
func (s *NeighborScout) ensureOtherAgent(now time.Time, id wire.AgentID) (*otherAgent, error) {
	o := s.otherAgentByID[id]
	if o != nil {
		return o, nil
	}
	if len(s.otherAgentByID) == wire.MaxPeerEchoes {
		maps.DeleteFunc(s.otherAgentByID, func(_ wire.AgentID, o *otherAgent) bool { return !o.isAlive(now) })
	}
	if len(s.otherAgentByID) == wire.MaxPeerEchoes {
		return nil, fmt.Errorf("there are more than %d other agents in the cell: split the cell", wire.MaxPeerEchoes)
	}
	o = &otherAgent{}
	s.otherAgentByID[id] = o
	return o, nil
}

func (o *otherAgent) isAlive(now time.Time) bool { return now.Before(o.aliveUntil) }

// bringNextBeaconForward brings the next beacon forward, since a newcomer waits for its stamp.
func (s *NeighborScout) bringNextBeaconForward(now time.Time) {
	soon := now.Add(time.Duration(s.cfg.Rand.Int64N(int64(maxNewcomerAnswerDelay))))
	if !s.nextBeaconAt.IsZero() && soon.Before(s.nextBeaconAt) {
		s.nextBeaconAt = soon
	}
}

// updateRTT takes the round-trip time from the answer to an own beacon. It follows a shorter time at once and a longer
// one slowly: the time above the shortest is spent in queues.
func (s *NeighborScout) updateRTT(now time.Time, o *otherAgent) {
	i, found := slices.BinarySearchFunc(o.lastBeacon.PeerEchoes, s.cfg.OwnID, compareEchoAgentID)
	if !found || o.lastBeacon.PeerEchoes[i].BootEpoch != s.cfg.Boot {
		return
	}
	h := &o.lastBeacon.PeerEchoes[i]
	sent := s.beaconClockStart.Add(time.Duration(h.BeaconSentAtMicros) * time.Microsecond)
	rtt := now.Sub(sent) - time.Duration(h.HoldMicros)*time.Microsecond
	if h.BeaconSentAtMicros > uint64(now.Sub(s.beaconClockStart).Microseconds()) || rtt < 0 {
		return // not an own stamp
	}
	rtt = max(rtt, time.Microsecond)
	if o.rtt == 0 {
		s.bringNextBeaconForward(now) // the others need it for their choice
	}
	if o.rtt == 0 || rtt < o.rtt {
		o.rtt = rtt
	} else {
		o.rtt += (rtt - o.rtt) / 8
	}
}

func compareEchoAgentID(h wire.BeaconEcho, id wire.AgentID) int {
	if h.ID < id {
		return -1
	} else if h.ID > id {
		return 1
	}
	return 0
}

// publishBeacon publishes the own beacon, and plans the next.
func (s *NeighborScout) publishBeacon(now time.Time) {
	alive := s.aliveAgents(now)
	s.nextBeaconAt = now.Add(beaconInterval(len(s.otherAgentByID)))
	s.lastOwnBeacon = s.buildOwnBeacon(now, alive)
	head := wire.PeerMessageHeader{Type: wire.PeerSignedBeacon, Sender: s.cfg.OwnID, SenderBootEpoch: s.cfg.Boot}
	payload := s.cfg.SignBeacon(wire.AppendBeacon(nil, head, &s.lastOwnBeacon))
	if payload == nil {
		head.Type = wire.PeerBeacon
		payload = wire.AppendBeacon(nil, head, &s.lastOwnBeacon)
	}
	s.effects = append(s.effects, PublishBeacon{payload})
	s.scheduleEdgeChoice(now) // others may have become silent
}

// chooseEdges chooses the edges from the newest beacons. A choice made twice in a row is stable, and is reported.
func (s *NeighborScout) chooseEdges(now time.Time) {
	s.nextEdgeChoiceAt = time.Time{}
	alive := s.aliveAgents(now)
	chosen := s.chooseNeighbors(alive)
	switch {
	case !slices.Equal(chosen, s.lastChosenNeighbors):
		s.lastChosenNeighbors = chosen
		s.scheduleEdgeChoice(now)
	case !slices.Equal(chosen, s.reportedNeighbors):
		s.reportedNeighbors = chosen
		s.effects = append(s.effects, NeighborsChosen{slices.Clone(chosen), len(alive)})
	}
}

// aliveAgents returns, in id order, the agents of the cell that are alive.
func (s *NeighborScout) aliveAgents(now time.Time) []wire.AgentID {
	var ids []wire.AgentID
	for _, id := range slices.Sorted(maps.Keys(s.otherAgentByID)) {
		if s.otherAgentByID[id].isAlive(now) {
			ids = append(ids, id)
		}
	}
	return ids
}

// buildOwnBeacon returns the own beacon: the agent's knowledge of the others.
func (s *NeighborScout) buildOwnBeacon(now time.Time, alive []wire.AgentID) wire.Beacon {
	b := wire.Beacon{
		NextBeaconMillis: uint32(beaconInterval(len(s.otherAgentByID)).Milliseconds()),
		SentAtMicros:     uint64(now.Sub(s.beaconClockStart).Microseconds()),
		MaxNeighbors:     uint16(s.cfg.MaxNeighbors), Location: s.cfg.Location,
	}
	for _, id := range alive {
		o := s.otherAgentByID[id]
		if o.reportedRTT == 0 || o.rtt > 2*o.reportedRTT || 2*o.rtt < o.reportedRTT {
			o.reportedRTT = o.rtt
		}
		b.PeerEchoes = append(b.PeerEchoes, wire.BeaconEcho{
			PeerInstance: wire.PeerInstance{ID: id, BootEpoch: o.boot}, BeaconSentAtMicros: o.lastBeacon.SentAtMicros,
			HoldMicros: saturatedMicros(now.Sub(o.beaconReceivedAt)), RTTMicros: saturatedMicros(o.reportedRTT),
		})
	}
	return b
}

// saturatedMicros returns a time in microseconds, at most the largest uint32 (71 minutes).
func saturatedMicros(d time.Duration) uint32 { return uint32(min(d.Microseconds(), 1<<32-1)) }
