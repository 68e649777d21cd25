package d2d

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// ScoutConfig configures a NeighborScout.
type ScoutConfig struct {
	OwnID        wire.AgentID
	Boot         wire.Epoch // boot epoch of this agent
	Location     wire.AgentLocation
	MaxNeighbors int // maximum number of neighbours of this agent
	// SignBeacon signs a beacon message and returns it. It returns nil while the agent has no attestation; beacons are
	// then unsigned, and unsigned beacons of others are accepted.
	SignBeacon func(message []byte) []byte
	// CheckBeaconProof returns an error if a beacon must be rejected. The parameter proof is nil for an unsigned
	// beacon.
	CheckBeaconProof func(from wire.AgentID, proof *wire.BeaconProof) error
	Rand             *rand.Rand // random source for the delay of answers to new agents
}

// Timing of beacons.
const (
	minBeaconInterval      = 10 * time.Second
	beaconDoublingAgents   = 16
	maxNewcomerAnswerDelay = time.Second      // maximum delay of the beacon that answers a new agent
	maxMissedBeacons       = 3                // number of missed beacons after which an agent is considered unreachable
	maxBeaconInterval      = 10 * time.Minute // upper limit for the interval that a beacon announces
	// maximum number of times that the edges are chosen in one beacon interval.
	maxChoicesPerBeacon = 10
)

// NeighborScout finds an agent's neighbours. It announces the agent to its cell, measures the round-trip time to each
// other agent, and chooses the edges.
//
// The only message is the beacon, which the whole cell receives. It lists, for each other agent, the timestamp of its
// latest beacon and the time since its arrival. An agent that finds its own timestamp there computes the round-trip
// time: now − timestamp − hold time. A retained beacon has an unknown age, so it does not show that its sender is
// alive.
type NeighborScout struct {
	cfg                 ScoutConfig
	beaconClockStart    time.Time // time to which the timestamps of this agent's beacons are relative
	otherAgentByID      map[wire.AgentID]*otherAgent
	nextBeaconAt        time.Time // time of this agent's next beacon; zero while disconnected
	nextEdgeChoiceAt    time.Time // time of the next choice of edges; zero if no new beacon has arrived
	lastOwnBeacon       wire.Beacon
	lastChosenNeighbors []wire.AgentID
	reportedNeighbors   []wire.AgentID
	effects             []Effect
}

// otherAgent is another agent of the cell.
type otherAgent struct {
	boot wire.Epoch
	// arrival time of the latest beacon that was not retained; zero means that none has arrived
	beaconReceivedAt time.Time
	aliveUntil       time.Time // time at which the agent is considered unreachable unless another beacon arrives
	lastBeacon       wire.Beacon
	rtt              time.Duration // round-trip time to the agent; 0 means unknown
	// round-trip time that this agent's beacons report; it changes only when rtt has doubled or halved
	reportedRTT time.Duration
}

// Events and effects of a NeighborScout, in addition to Tick.
type (
	// BrokerLinkChanged is delivered when the connection to the broker is established or lost.
	BrokerLinkChanged struct{ IsConnected bool }
	// BeaconReceived is delivered when a message on an agent's beacon topic has arrived. An empty payload means that
	// the agent has deleted its beacon.
	BeaconReceived struct {
		TopicOwner wire.AgentID // agent to which the topic belongs
		Payload    []byte
		IsRetained bool // whether the broker had retained the message, so that its age is unknown
	}
	// AttestationReceived is delivered when this agent becomes able to sign its beacons.
	AttestationReceived struct{}
	// PublishBeacon makes the host publish the agent's beacon as a retained message.
	PublishBeacon struct{ Payload []byte }
	// NeighborsChosen is emitted when the set of chosen neighbours has changed. Neighbours are in id order.
	NeighborsChosen struct {
		Neighbors            []wire.AgentID
		AliveOtherAgentCount int // number of other agents of the cell that are alive
	}
	// BeaconRejected is emitted when a beacon was rejected, with the reason.
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

// NewNeighborScout returns a NeighborScout that is not connected to the broker. It panics if cfg is invalid.
func NewNeighborScout(cfg ScoutConfig) *NeighborScout {
	if cfg.Boot == 0 || cfg.MaxNeighbors < 1 || cfg.MaxNeighbors > wire.MaxNeighbors || cfg.Rand == nil ||
		cfg.SignBeacon == nil || cfg.CheckBeaconProof == nil {
		panic(fmt.Sprintf("d2d: NewNeighborScout: Boot is %d, but must be at least 1; MaxNeighbors is %d, but must "+
			"be between 1 and %d; Rand, SignBeacon and CheckBeaconProof must be set",
			cfg.Boot, cfg.MaxNeighbors, wire.MaxNeighbors))
	}
	return &NeighborScout{cfg: cfg, otherAgentByID: map[wire.AgentID]*otherAgent{}}
}

// Deadline returns the time at which the caller must deliver the next Tick. It returns false if no Tick is needed.
func (s *NeighborScout) Deadline() (time.Time, bool) {
	if !s.nextEdgeChoiceAt.IsZero() && s.nextEdgeChoiceAt.Before(s.nextBeaconAt) {
		return s.nextEdgeChoiceAt, true
	}
	return s.nextBeaconAt, !s.nextBeaconAt.IsZero()
}

// Step processes one event (BrokerLinkChanged, BeaconReceived, AttestationReceived or Tick). It returns the effects to
// perform, in order: PublishBeacon, NeighborsChosen and BeaconRejected.
func (s *NeighborScout) Step(now time.Time, ev Event) []Effect {
	s.effects = nil
	if s.beaconClockStart.IsZero() {
		s.beaconClockStart = now.Add(-time.Second)
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
		panic(fmt.Sprintf("d2d: unexpected event %T", ev))
	}
	if !s.nextBeaconAt.IsZero() && !now.Before(s.nextBeaconAt) {
		s.publishBeacon(now)
	}
	if !s.nextEdgeChoiceAt.IsZero() && !now.Before(s.nextEdgeChoiceAt) {
		s.chooseEdges(now)
	}
	return s.effects
}

// receiveBeacon processes another agent's beacon or its deletion.
func (s *NeighborScout) receiveBeacon(now time.Time, ev BeaconReceived) error {
	if ev.TopicOwner == s.cfg.OwnID {
		return nil
	}
	if len(ev.Payload) == 0 {
		if o := s.otherAgentByID[ev.TopicOwner]; o != nil {
			o.aliveUntil = now
		}
		return nil
	}
	head, beacon, proof, err := wire.DecodeBeacon(ev.Payload)
	if err != nil {
		return err
	}
	if head.Sender != ev.TopicOwner {
		return fmt.Errorf("discovery beacon from agent %q arrived on the topic of agent %q", head.Sender, ev.TopicOwner)
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
		return nil
	case head.SenderBootEpoch > o.boot:
		*o = otherAgent{boot: head.SenderBootEpoch}
	}
	if ev.IsRetained || beacon.SentAtMicros <= o.lastBeacon.SentAtMicros {
		return nil
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

func (s *NeighborScout) scheduleEdgeChoice(now time.Time) {
	if s.nextEdgeChoiceAt.IsZero() && !s.nextBeaconAt.IsZero() {
		s.nextEdgeChoiceAt = now.Add(beaconInterval(len(s.otherAgentByID)) / maxChoicesPerBeacon)
	}
}

// beaconInterval returns the interval between two beacons in a cell with the given number of other agents. The interval
// grows with the number of agents, because the size of a beacon does.
func beaconInterval(others int) time.Duration {
	return minBeaconInterval + minBeaconInterval*time.Duration(others)/beaconDoublingAgents
}

// ensureOtherAgent returns the entry of another agent, and creates the entry if necessary. In a full cell it first
// removes the agents that are considered unreachable.
func (s *NeighborScout) ensureOtherAgent(now time.Time, id wire.AgentID) (*otherAgent, error) {
	o := s.otherAgentByID[id]
	if o != nil {
		return o, nil
	}
	if len(s.otherAgentByID) == wire.MaxPeerEchoes {
		maps.DeleteFunc(s.otherAgentByID, func(_ wire.AgentID, o *otherAgent) bool { return !o.isAlive(now) })
	}
	if len(s.otherAgentByID) == wire.MaxPeerEchoes {
		return nil, fmt.Errorf("the discovery cell has more than %d other agents: split the cell", wire.MaxPeerEchoes)
	}
	o = &otherAgent{}
	s.otherAgentByID[id] = o
	return o, nil
}

func (o *otherAgent) isAlive(now time.Time) bool { return now.Before(o.aliveUntil) }

// bringNextBeaconForward schedules this agent's next beacon earlier. A new agent needs the echo of its timestamp in
// this beacon to measure the round-trip time.
func (s *NeighborScout) bringNextBeaconForward(now time.Time) {
	soon := now.Add(time.Duration(s.cfg.Rand.Int64N(int64(maxNewcomerAnswerDelay))))
	if !s.nextBeaconAt.IsZero() && soon.Before(s.nextBeaconAt) {
		s.nextBeaconAt = soon
	}
}

// updateRTT updates the round-trip time from another agent's echo of this agent's beacon. A shorter time is adopted
// immediately and a longer time slowly, because times above the minimum are caused by queues.
func (s *NeighborScout) updateRTT(now time.Time, o *otherAgent) {
	i, found := slices.BinarySearchFunc(o.lastBeacon.PeerEchoes, s.cfg.OwnID, compareEchoAgentID)
	if !found || o.lastBeacon.PeerEchoes[i].BootEpoch != s.cfg.Boot {
		return
	}
	h := &o.lastBeacon.PeerEchoes[i]
	sent := s.beaconClockStart.Add(time.Duration(h.BeaconSentAtMicros) * time.Microsecond)
	rtt := now.Sub(sent) - time.Duration(h.HoldMicros)*time.Microsecond
	if h.BeaconSentAtMicros > uint64(now.Sub(s.beaconClockStart).Microseconds()) || rtt < 0 {
		return
	}
	rtt = max(rtt, time.Microsecond)
	if o.rtt == 0 {
		s.bringNextBeaconForward(now)
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

// publishBeacon publishes this agent's beacon and schedules the next one.
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
	s.scheduleEdgeChoice(now)
}

// chooseEdges chooses the edges from the latest beacons. It reports a choice only if two successive choices are equal.
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

// aliveAgents returns the other agents of the cell that are alive, in id order.
func (s *NeighborScout) aliveAgents(now time.Time) []wire.AgentID {
	var ids []wire.AgentID
	for _, id := range slices.Sorted(maps.Keys(s.otherAgentByID)) {
		if s.otherAgentByID[id].isAlive(now) {
			ids = append(ids, id)
		}
	}
	return ids
}

// buildOwnBeacon returns this agent's beacon, which echoes the timestamps of the other agents' beacons.
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

// saturatedMicros returns a duration in microseconds, limited to the largest uint32 (71 minutes).
func saturatedMicros(d time.Duration) uint32 { return uint32(min(d.Microseconds(), 1<<32-1)) }
