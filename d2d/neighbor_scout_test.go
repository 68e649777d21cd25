package d2d

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// cell simulates several scouts at one broker, which retains the last beacon of each scout.
type cell struct {
	t      *testing.T
	rng    *rand.Rand
	now    time.Time
	ids    []wire.AgentID
	scouts map[wire.AgentID]*NeighborScout // scouts of the agents that are running
	found  map[wire.AgentID][]wire.AgentID
	news   int // number of NeighborsChosen effects so far
	kept   map[wire.AgentID][]byte
	under  []delivery
	link   func(id wire.AgentID) time.Duration // maximum one-way delay between an agent and the broker
	loss   float64
	degree int
}

type delivery struct {
	at   time.Time
	to   wire.AgentID
	what BeaconReceived
}

func newCell(t *testing.T, n, degree int) *cell {
	c := &cell{
		t: t, rng: rand.New(rand.NewPCG(5, 5)), now: time.Unix(1000, 0), scouts: map[wire.AgentID]*NeighborScout{},
		degree: degree,
		found:  map[wire.AgentID][]wire.AgentID{}, kept: map[wire.AgentID][]byte{},
		link: func(wire.AgentID) time.Duration { return time.Millisecond },
	}
	for i := range n {
		c.ids = append(c.ids, wire.AgentID(fmt.Sprintf("n%03d", i)))
	}
	return c
}

// hall is the beacon cell that these tests use.
var hall = wire.BeaconCell{Federation: "plant", CellName: "hall"}

// keyOf returns a key that is different for each id.
func keyOf(id wire.AgentID) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(id))
	return ed25519.NewKeyFromSeed(seed[:])
}

// wordOf returns the coordinator's signed attestation of an agent's key.
func wordOf(id wire.AgentID) wire.AgentKeyAttestation {
	word := wire.AgentKeyAttestation{AgentKey: wire.SigningPublicKeyOf(keyOf(id))}
	word.CoordinatorSignature = wire.Signature(ed25519.Sign(keyOf(wire.CoordinatorID),
		wire.AgentKeyAttestationText(hall.Federation, id,
			word.AgentKey)))
	return word
}

// signedBy returns a function that signs beacons as the given agent.
func signedBy(id wire.AgentID) func([]byte) []byte {
	return func(message []byte) []byte {
		return wire.SignBeacon(wire.Ed25519{}, message, hall, wordOf(id), keyOf(id))
	}
}

// signed is a beacon check that accepts only signed beacons.
func signed(from wire.AgentID, proof *wire.BeaconProof) error {
	if proof == nil || !proof.Attestation.Verify(wire.Ed25519{}, hall.Federation, from,
		keyOf(wire.CoordinatorID).Public().(ed25519.PublicKey)) || !proof.Verify(wire.Ed25519{}, hall) {
		return errors.New("not signed")
	}
	return nil
}

// open returns the configuration of an agent without an attestation, whose beacons are not signed.
func open(id wire.AgentID, boot wire.Epoch, degree int, rng *rand.Rand) ScoutConfig {
	return ScoutConfig{OwnID: id, Boot: boot, MaxNeighbors: degree, Rand: rng,
		SignBeacon:       func([]byte) []byte { return nil },
		CheckBeaconProof: func(wire.AgentID, *wire.BeaconProof) error { return nil }}
}

// boot starts or restarts the scout of an agent.
func (c *cell) boot(id wire.AgentID, boot wire.Epoch, place wire.AgentLocation) {
	c.scouts[id] = NewNeighborScout(ScoutConfig{OwnID: id, Boot: boot, Location: place, MaxNeighbors: c.degree,
		Rand:       c.rng,
		SignBeacon: signedBy(id), CheckBeaconProof: signed})
	delete(c.found, id)
	c.step(id, BrokerLinkChanged{IsConnected: true})
	for _, from := range c.ids {
		if p := c.kept[from]; p != nil {
			c.send(id, BeaconReceived{from, p, true})
		}
	}
}

func (c *cell) bootAll(place func(i int) wire.AgentLocation) {
	for i, id := range c.ids {
		c.boot(id, 1, place(i))
	}
}

func nowhere(int) wire.AgentLocation { return wire.AgentLocation{} }

func (c *cell) send(to wire.AgentID, h BeaconReceived) {
	delay := c.link(to) + c.link(h.TopicOwner)
	c.under = append(c.under, delivery{c.now.Add(delay/2 + time.Duration(c.rng.Int64N(int64(delay/2)+1))), to, h})
}

func (c *cell) step(id wire.AgentID, ev Event) {
	for _, e := range c.scouts[id].Step(c.now, ev) {
		switch e := e.(type) {
		case PublishBeacon:
			c.kept[id] = e.Payload
			for _, to := range c.ids {
				if c.rng.Float64() >= c.loss {
					c.send(to, BeaconReceived{id, e.Payload, false})
				}
			}
		case NeighborsChosen:
			c.found[id], c.news = e.Neighbors, c.news+1
		case BeaconRejected:
			c.t.Errorf("%s: %v", id, e.Err)
		}
	}
}

// run advances the simulated clock by d.
func (c *cell) run(d time.Duration) {
	for end := c.now.Add(d); ; {
		at, next := end, func() {}
		for i, m := range c.under {
			if !m.at.After(at) {
				at, next = m.at, func() {
					c.under = slices.Delete(c.under, i, i+1)
					if c.scouts[m.to] != nil {
						c.step(m.to, m.what)
					}
				}
			}
		}
		for _, id := range c.ids {
			if s := c.scouts[id]; s != nil {
				if due, ok := s.Deadline(); ok && !due.After(at) {
					at, next = due, func() { c.step(id, Tick{}) }
				}
			}
		}
		if c.now = at; at.Equal(end) {
			return
		}
		next()
	}
}

// edges returns the edges between agents. It checks that both ends of each edge report the edge.
func (c *cell) edges() map[[2]wire.AgentID]bool {
	edges := map[[2]wire.AgentID]bool{}
	for id, to := range c.found {
		if len(to) > c.degree {
			c.t.Errorf("%s has %d neighbours", id, len(to))
		}
		for _, other := range to {
			if !slices.Contains(c.found[other], id) {
				c.t.Errorf("%s has chosen %s, and is not chosen", id, other)
			}
			edges[[2]wire.AgentID{min(id, other), max(id, other)}] = true
		}
	}
	return edges
}

// parts returns the number of connected components of the graph that the living agents have chosen.
func (c *cell) parts() int {
	part := map[wire.AgentID]wire.AgentID{}
	var root func(id wire.AgentID) wire.AgentID
	root = func(id wire.AgentID) wire.AgentID {
		if p, ok := part[id]; ok && p != id {
			return root(p)
		}
		return id
	}
	n := len(c.scouts)
	for e := range c.edges() {
		if a, b := root(e[0]), root(e[1]); a != b {
			part[a] = b
			n--
		}
	}
	return n
}

// TestScoutsAgree checks that agents that start together soon choose the same graph. Both ends must choose each edge,
// the graph must be connected, and all agents must have the maximum number of neighbours.
func TestScoutsAgree(t *testing.T) {
	for _, tt := range []struct{ n, degree, edges int }{{1, 4, 0}, {2, 4, 1}, {5, 2, 4}, {20, 4, 39}, {50, 6, 149}} {
		if tt.n > 20 && testing.Short() {
			continue
		}
		c := newCell(t, tt.n, tt.degree)
		c.bootAll(nowhere)
		c.run(15 * time.Second)
		if got := len(c.edges()); got < tt.edges || c.parts() != 1 {
			t.Errorf("%d agents: %d edges, want %d, in %d parts", tt.n, got, tt.edges, c.parts())
		}
		before := c.news
		c.run(time.Minute)
		if c.news > before {
			t.Errorf("%d agents: %d changes in a quiet cell", tt.n, c.news-before)
		}
	}
}

// TestScoutsWithLoss checks that the agents still choose the same graph if beacons are lost or delayed by up to 3 ms.
func TestScoutsWithLoss(t *testing.T) {
	c := newCell(t, 12, 3)
	c.loss, c.link = 0.2, func(wire.AgentID) time.Duration { return 3 * time.Millisecond }
	c.bootAll(nowhere)
	lossy, quiet := 5*time.Minute, 10*time.Minute
	if testing.Short() {
		lossy, quiet = 2*time.Minute, 3*time.Minute
	}
	c.run(lossy)
	c.loss = 0
	c.run(2 * time.Minute)
	before := c.news
	c.run(quiet)
	if c.parts() != 1 || c.news > before+24 {
		t.Errorf("%d parts, %d changes when nothing is lost: %v", c.parts(), c.news-before, c.found)
	}
}

// TestScoutsChooseTheNear checks that agents with short round-trip times become neighbours. Agents on a slow link must
// get one edge that connects them, and further edges only if their peers accept more neighbours.
func TestScoutsChooseTheNear(t *testing.T) {
	c := newCell(t, 10, 3)
	slow := func(id wire.AgentID) bool { return id >= "n004" }
	c.link = func(id wire.AgentID) time.Duration {
		if slow(id) {
			return 80 * time.Millisecond
		}
		return time.Millisecond
	}
	c.bootAll(nowhere)
	c.run(time.Minute)
	for id, to := range c.found {
		far := 0
		for _, other := range to {
			if slow(other) {
				far++
			}
		}
		if !slow(id) && far == len(to) {
			t.Errorf("%s is fast and has only slow neighbours: %v", id, to)
		}
	}
	if c.parts() != 1 || c.scouts["n000"].otherAgentByID["n001"].rtt > 4*time.Millisecond ||
		c.scouts["n000"].otherAgentByID["n009"].rtt < 50*time.Millisecond {
		t.Errorf("%d parts; times %v and %v", c.parts(), c.scouts["n000"].otherAgentByID["n001"].rtt,
			c.scouts["n000"].otherAgentByID["n009"].rtt)
	}
}

// TestScoutsChooseByPlace checks that the locations decide if all round-trip times are equal: agents that stand in a
// row and accept two neighbours each must become connected in the order of the row.
func TestScoutsChooseByPlace(t *testing.T) {
	c := newCell(t, 8, 2)
	c.bootAll(func(i int) wire.AgentLocation { return wire.AgentLocation{IsKnown: true, X: float64(i * 3 % 8)} })
	c.run(time.Minute)
	at := func(id wire.AgentID) int { return slices.Index(c.ids, id) * 3 % 8 }
	for e := range c.edges() {
		if d := at(e[0]) - at(e[1]); d*d != 1 && d*d != 49 { // An edge between the two ends of the row is allowed too.
			t.Errorf("edge %v between places %d and %d", e, at(e[0]), at(e[1]))
		}
	}
	if c.parts() != 1 {
		t.Errorf("%d parts", c.parts())
	}
}

// TestScoutsForgetTheDead checks that an agent that sends no more beacons is removed. The agent's retained beacon must
// not bring the agent back, even for agents that join later.
func TestScoutsForgetTheDead(t *testing.T) {
	c := newCell(t, 6, 2)
	late := c.ids[5]
	for i, id := range c.ids[:5] {
		c.boot(id, 1, nowhere(i))
	}
	c.run(time.Minute)
	dead := c.ids[2]
	delete(c.scouts, dead)
	delete(c.found, dead)
	c.run(time.Minute)
	c.boot(late, 1, nowhere(5))
	c.run(20 * time.Second)
	if alive := c.scouts[late].aliveAgents(c.now); slices.Contains(alive, dead) {
		t.Errorf("%s counts for the newcomer: %v", dead, alive)
	}
	c.run(time.Minute)
	for id, to := range c.found {
		if slices.Contains(to, dead) {
			t.Errorf("%s has chosen the dead %s: %v", id, dead, to)
		}
	}
	if c.parts() != 1 || len(c.found[late]) == 0 {
		t.Errorf("%d parts, the newcomer has %v", c.parts(), c.found[late])
	}
	c.boot(dead, 2, nowhere(2)) // Restart the removed agent.
	c.run(time.Minute)
	if len(c.found[dead]) == 0 || c.parts() != 1 {
		t.Errorf("after its restart %s has %v, %d parts", dead, c.found[dead], c.parts())
	}
	for _, id := range c.ids { // Each agent that leaves the cell must be removed immediately.
		if id != dead {
			c.step(id, BeaconReceived{TopicOwner: dead})
		}
	}
	delete(c.scouts, dead)
	if alive := c.scouts[late].aliveAgents(c.now); slices.Contains(alive, dead) {
		t.Errorf("%s still counts: %v", dead, alive)
	}
}

// TestScoutRefuses checks that invalid messages are rejected with a reason.
func TestScoutRefuses(t *testing.T) {
	s := NewNeighborScout(open("a", 1, 2, rand.New(rand.NewPCG(1, 1))))
	now := time.Unix(0, 0)
	s.Step(now, BrokerLinkChanged{IsConnected: true})
	stamp := uint64(0)
	beacon := func(from wire.AgentID, h ...wire.BeaconEcho) []byte {
		stamp++
		return wire.AppendBeacon(nil, wire.PeerMessageHeader{Type: wire.PeerBeacon, Sender: from, SenderBootEpoch: 3},
			&wire.Beacon{NextBeaconMillis: 1000, SentAtMicros: stamp, MaxNeighbors: 2, PeerEchoes: h})
	}
	for name, tt := range map[string]struct {
		heard BeaconReceived
		want  string
	}{
		"another's topic": {BeaconReceived{TopicOwner: "b", Payload: beacon("c")}, "on the topic of"},
		"not a beacon":    {BeaconReceived{TopicOwner: "b", Payload: []byte("FEDX")}, "ends inside"},
		"a round's": {BeaconReceived{TopicOwner: "b",
			Payload: wire.AppendPeerControl(nil, wire.PeerMessageHeader{Type: wire.PeerSnapshotRequest, Sender: "b"},
				&wire.PeerControlMessage{})},
			"malformed"},
	} {
		var got string
		for _, e := range s.Step(now, tt.heard) {
			if u, ok := e.(BeaconRejected); ok {
				got = u.Err.Error()
			}
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	own := wire.PeerInstance{ID: "a", BootEpoch: 1}
	for name, h := range map[string]wire.BeaconEcho{
		"a stamp of the future":  {PeerInstance: own, BeaconSentAtMicros: 1 << 62},
		"held longer than it is": {PeerInstance: own, BeaconSentAtMicros: 1_000_000, HoldMicros: 1 << 31},
		"an earlier start": {PeerInstance: wire.PeerInstance{ID: "a", BootEpoch: 9},
			BeaconSentAtMicros: 1_000_000},
	} {
		s.Step(now.Add(time.Second), BeaconReceived{TopicOwner: "b", Payload: beacon("b", h)})
		if rtt := s.otherAgentByID["b"].rtt; rtt != 0 {
			t.Errorf("%s gives a time of %v", name, rtt)
		}
	}
	for i := range wire.MaxPeerEchoes {
		id := wire.AgentID(fmt.Sprint("z", i))
		effects := s.Step(now.Add(2*time.Second), BeaconReceived{TopicOwner: id, Payload: beacon(id)})
		full := slices.ContainsFunc(effects, func(e Effect) bool { _, ok := e.(BeaconRejected); return ok })
		if full != (i == wire.MaxPeerEchoes-1) { // The agent "b" is already in the cell.
			t.Errorf("agent %d of the cell is refused: %v", i, full)
		}
	}
	for _, e := range s.Step(now.Add(time.Minute), BeaconReceived{TopicOwner: "y", Payload: beacon("y")}) {
		// All other agents are considered unreachable by now, so the cell can accept a new agent.
		if u, ok := e.(BeaconRejected); ok {
			t.Error(u.Err)
		}
	}
	if got := s.Step(now.Add(time.Hour), BrokerLinkChanged{}); got != nil || !s.nextBeaconAt.IsZero() {
		t.Errorf("without a link it does %v", got)
	}
}

// TestScoutTakesSigned checks that a beacon is accepted only if its sender has signed it for this cell, and is accepted
// only once.
func TestScoutTakesSigned(t *testing.T) {
	now := time.Unix(0, 0)
	m := wire.AppendBeacon(nil, wire.PeerMessageHeader{Type: wire.PeerSignedBeacon, Sender: "b", SenderBootEpoch: 3},
		&wire.Beacon{NextBeaconMillis: 1000, SentAtMicros: 1, MaxNeighbors: 2,
			PeerEchoes: []wire.BeaconEcho{{PeerInstance: wire.PeerInstance{ID: "a", BootEpoch: 1}}}})
	for name, of := range map[string]func([]byte) []byte{
		"another's signature": signedBy("c"),
		"none": func([]byte) []byte {
			return wire.AppendBeacon(nil, wire.PeerMessageHeader{Type: wire.PeerBeacon, Sender: "b",
				SenderBootEpoch: 3},
				&wire.Beacon{NextBeaconMillis: 1000, SentAtMicros: 1, MaxNeighbors: 2})
		},
		"another cell's": func(m []byte) []byte {
			return wire.SignBeacon(wire.Ed25519{}, m, wire.BeaconCell{Federation: "plant", CellName: "yard"},
				wordOf("b"),
				keyOf("b"))
		},
		"its own, changed": func(m []byte) []byte {
			m = signedBy("b")(m)
			m[len(m)-200] ^= 1
			return m
		},
	} {
		strict := open("a", 1, 2, rand.New(rand.NewPCG(1, 1)))
		strict.CheckBeaconProof = signed
		s := NewNeighborScout(strict)
		s.Step(now, BrokerLinkChanged{IsConnected: true})
		effects := s.Step(now, BeaconReceived{TopicOwner: "b", Payload: of(slices.Clone(m))})
		if len(effects) != 1 || len(s.otherAgentByID) != 0 {
			t.Errorf("%s: %v", name, effects)
		}
		its := BeaconReceived{TopicOwner: "b", Payload: signedBy("b")(slices.Clone(m))}
		if effects := s.Step(now, its); len(effects) != 0 || !s.otherAgentByID["b"].beaconReceivedAt.Equal(now) {
			t.Errorf("its own is refused: %v", effects)
		}
		if s.Step(now.Add(time.Second), its); !s.otherAgentByID["b"].beaconReceivedAt.Equal(now) {
			t.Error("a beacon counts twice")
		}
	}
}

// FuzzScout passes fuzzed messages on beacon topics to a scout, since outsiders may write to these topics.
func FuzzScout(f *testing.F) {
	c := newCell(&testing.T{}, 3, 2)
	for i, id := range c.ids {
		c.boot(id, wire.Epoch(i+1), wire.AgentLocation{})
	}
	for _, id := range c.ids {
		f.Add(string(id), c.kept[id], false)
	}
	s, now := NewNeighborScout(open("n000", 1, 2, c.rng)), c.now
	s.Step(now, BrokerLinkChanged{IsConnected: true})
	f.Fuzz(func(t *testing.T, from string, beacon []byte, retained bool) {
		now = now.Add(time.Millisecond)
		s.Step(now, BeaconReceived{wire.AgentID(from), beacon, retained})
		at, due := s.Deadline()
		if !due || at.After(now.Add(beaconInterval(wire.MaxPeerEchoes))) || len(s.otherAgentByID) > wire.MaxPeerEchoes {
			t.Fatalf("%d others are kept, the next beacon comes %v later (%v)", len(s.otherAgentByID), at.Sub(now), due)
		}
		if at.Before(now) {
			s.Step(now, Tick{})
		}
	})
}
