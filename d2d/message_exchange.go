package d2d

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// ExchangeConfig adds to Config the names, keys and codec of the messages.
type ExchangeConfig[T wire.Float] struct {
	MixingConfig[T]
	Self  wire.AgentID
	Run   wire.RunID
	Round wire.RoundID
	Keys  *ExchangeKeys // nil = messages are not sealed, as on a trusted bench
	// SenderProofs has each message prove which neighbour has sent it; all of the block do, or none. Without keys none
	// can.
	SenderProofs bool
	Codec        spec.Codec // of snapshots; empty = raw
	Rand         *rand.Rand // of a codec that rounds at random; else it may be nil
}

// exchange is a mixer with its messages: it seals and opens them, splits large
// snapshots and joins their parts, and distributes the keys. Its host only
// publishes, subscribes and takes local steps:
//
//	effects := exchange.Step(now, Start{})
//	for {
//		carry out Publish, compute and ended, in order
//		effects = exchange.Step(now, Message{…}, Stepped{} or, at Deadline(), Tick{})
//	}
type exchange[T wire.Float] struct {
	cfg              ExchangeConfig[T]
	headerTemplate   wire.PeerMessageHeader
	mixer            *mixer[T]
	peers            []*peer // in the order of Config.Neighbors
	own              *sealer
	addsProofs       bool
	sealedSnapshots  map[uint64][][]byte // sealed snapshots by step
	sealedControls   uint64              // of sealed controls
	greetingAt       time.Time           // when the greeting is due; zero while it is not
	lastGreetingAt   time.Time           // of the last greeting
	greetingInterval time.Duration       // least time to the next one
	codec            codec.Codec[T]
	size             int    // of a snapshot, in bytes
	packedSnapshot   []byte // the present snapshot
	out              []Effect
}

// peer is the other end of an edge.
type peer struct {
	id               wire.AgentID
	secret           []byte     // shared by the two devices
	boot             wire.Epoch // the start that key belongs to
	theirSealer      *sealer    // nil until its greeting has come
	hasOwnKey        bool       // it has this agent's key
	proofs           proofKeys  // on this edge
	partialSnapshots []*snapshotAssembly
	spareBuffer      []byte // buffer of the last whole snapshot, for the next
}

// snapshotAssembly is a snapshot whose parts have not all come.
type snapshotAssembly struct {
	step    uint64
	data    []byte
	have    []bool
	missing int
}

// Message is a message on a neighbour's topic. Step opens the payload in place.
type Message struct{ Payload []byte }

// Publish asks the host to publish a message to the neighbours. Part is the
// last level of its topic.
type Publish struct {
	Part    string
	Payload []byte
}

func (Message) event()  {}
func (Publish) effect() {}

// newExchange returns an exchange that mixes x in place, as newMixer does. It fails on too many neighbours and on bad
// keys.
func newExchange[T wire.Float](cfg ExchangeConfig[T], x []T) (*exchange[T], error) {
	if len(cfg.Neighbors) > wire.MaxNeighbors {
		return nil, fmt.Errorf("there are %d neighbours, at most %d are allowed", len(cfg.Neighbors), wire.MaxNeighbors)
	}
	e := &exchange[T]{
		cfg: cfg, codec: codec.ForName[T](cmp.Or(cfg.Codec, spec.CodecRaw)), sealedSnapshots: map[uint64][][]byte{},
		headerTemplate: wire.PeerMessageHeader{Run: cfg.Run, Round: cfg.Round, From: cfg.Self, Boot: cfg.Boot},
	}
	if cfg.Keys != nil {
		own, err := newSealer(cfg.Keys.SenderKey[:])
		if err != nil {
			return nil, err
		}
		e.own, e.addsProofs = own, cfg.SenderProofs
	}
	for _, n := range cfg.Neighbors {
		p := &peer{id: n.ID, boot: n.Boot, hasOwnKey: cfg.Keys == nil}
		if cfg.Keys != nil {
			var err error
			if p.secret, err = sharedSecret(cfg.Keys.Private, n.Key); err != nil {
				return nil, fmt.Errorf("key of neighbour %q: %w", n.ID, err)
			}
			if p.proofs, err = newProofs(p.secret, e.headerTemplate, n.ID); err != nil {
				return nil, err
			}
		}
		e.peers = append(e.peers, p)
	}
	e.size = e.codec.Size(len(x))
	if cfg.Codec != "" && cfg.Codec != spec.CodecRaw {
		e.cfg.Quantize = e.quantize
	}
	e.mixer = newMixer(e.cfg.MixingConfig, x)
	return e, nil
}

// quantize packs a snapshot, and replaces it by what its receivers will have. One that is not finite they will ignore.
func (e *exchange[T]) quantize(x []T) {
	e.packedSnapshot = e.codec.Append(e.packedSnapshot[:0], x, e.cfg.Rand)
	_ = e.codec.Decode(x, e.packedSnapshot)
}

// Stats returns the counts so far.
func (e *exchange[T]) Stats() MixingStats { return e.mixer.Stats() }

// Deadline returns when the machine wants a Tick, if it does.
func (e *exchange[T]) Deadline() (time.Time, bool) {
	at, ok := e.mixer.Deadline()
	if !e.greetingAt.IsZero() && (!ok || e.greetingAt.Before(at)) {
		return e.greetingAt, true
	}
	return at, ok
}

// Step takes one event (Start, Stepped, Message or Tick) and returns the effects to carry out, in order: Publish,
// compute and ended.
func (e *exchange[T]) Step(now time.Time, ev Event) []Effect {
	e.out = nil
	if m, ok := ev.(Message); ok {
		ev = e.open(now, m.Payload)
	}
	if _, ok := ev.(Start); ok {
		e.greetAt(now)
	}
	e.sendGreeting(now) // before the messages that need its key
	if ev != nil {
		e.perform(now, e.mixer.Step(now, ev))
	}
	e.sendGreeting(now)
	return e.out
}

// perform turns the mixer's effects into messages.
func (e *exchange[T]) perform(now time.Time, effects []Effect) {
	for _, ef := range effects {
		switch ef := ef.(type) {
		case sendSnapshot[T]:
			e.sealedSnapshots[ef.Step] = e.seal(ef)
			e.publishSnapshot(ef.Step)
		case resendSnapshot:
			e.publishSnapshot(ef.Step)
		case releaseSnapshot:
			delete(e.sealedSnapshots, ef.Step)
		case requestSnapshot:
			e.publishControl(wire.PeerAsk, wire.PeerControl{To: address(ef.To), SnapshotSeq: ef.To.Seq})
		case sendFinish:
			e.publishControl(wire.PeerFinish, wire.PeerControl{To: address(ef.To), SnapshotSeq: ef.To.Seq,
				AppliedSeq: ef.Applied,
				Drained:    ef.Drained})
		case sendGreeting:
			e.greetAt(now)
		default: // compute, ended
			e.out = append(e.out, ef)
		}
	}
}

func address(to edgeAddress) wire.PeerAddress { return wire.PeerAddress{ID: to.ID, Boot: to.Boot} }

// controlPart is the part of greetings and controls; a snapshot's have their numbers, from 1.
const controlPart = "0"

func (e *exchange[T]) publish(part string, payload []byte) {
	e.out = append(e.out, Publish{part, payload})
}

func (e *exchange[T]) publishSnapshot(step uint64) {
	for i, payload := range e.sealedSnapshots[step] {
		e.publish(fmt.Sprint(i+1), payload)
	}
}

// seal makes the messages of a snapshot, which quantize has packed just now where it must.
func (e *exchange[T]) seal(s sendSnapshot[T]) [][]byte {
	if e.cfg.Quantize == nil {
		e.packedSnapshot = e.codec.Append(e.packedSnapshot[:0], s.X, nil)
	}
	head := wire.SnapshotPartHead{Step: s.Step, PartCount: uint16(e.parts())}
	for _, to := range s.To {
		head.Receivers = append(head.Receivers, wire.SnapshotReceiver{PeerAddress: address(to), Seq: to.Seq})
	}
	messages := make([][]byte, 0, e.parts())
	for part := range slices.Chunk(e.packedSnapshot, wire.MaxSnapshotPart) {
		head.PartIndex = uint16(len(messages))
		m := wire.AppendSnapshotPartHead(make([]byte, 0, 64+64*len(head.Receivers)+len(part)+wire.PeerSeal),
			e.headOf(wire.PeerSnapshot), &head)
		if e.own == nil {
			m = append(m, part...)
		} else {
			m = e.own.aead.Seal(m, nonce(wire.PeerSnapshot, head.PartIndex, s.Step), part, m)
			m = e.appendProofs(m, s.To...)
		}
		messages = append(messages, m)
	}
	return messages
}

// peer returns the other end of an edge; nil if there is none.
func (e *exchange[T]) peer(id wire.AgentID) *peer {
	i := slices.IndexFunc(e.peers, func(p *peer) bool { return p.id == id })
	if i < 0 {
		return nil
	}
	return e.peers[i]
}

func (e *exchange[T]) headOf(t wire.PeerMessageType) wire.PeerMessageHeader {
	h := e.headerTemplate
	h.Type = t
	return h
}

func (e *exchange[T]) parts() int {
	return max(1, (e.size+wire.MaxSnapshotPart-1)/wire.MaxSnapshotPart)
}

func (e *exchange[T]) publishControl(t wire.PeerMessageType, c wire.PeerControl) {
	e.sealedControls++
	c.SealCounter = e.sealedControls
	m := wire.AppendControl(nil, e.headOf(t), &c)
	if e.own != nil {
		m = e.own.aead.Seal(m, nonce(t, 0, c.SealCounter), nil, m)
		m = e.appendProofs(m, edgeAddress{ID: c.To.ID})
	}
	e.publish(controlPart, m)
}

// greetAt plans a greeting, at least the gap after the last one. Gaps are short at first: neighbours begin within
// moments of each other, and one that has not subscribed yet misses the greeting.
func (e *exchange[T]) greetAt(now time.Time) {
	if e.cfg.Keys == nil {
		return
	}
	e.greetingAt = now
	if soonest := e.lastGreetingAt.Add(e.greetingInterval); !e.lastGreetingAt.IsZero() && soonest.After(now) {
		e.greetingAt = soonest
	}
}

// sendGreeting publishes the greeting when it is due, and plans the next one while a key is missing somewhere.
func (e *exchange[T]) sendGreeting(now time.Time) {
	if e.greetingAt.IsZero() || now.Before(e.greetingAt) {
		return
	}
	e.greetingAt, e.lastGreetingAt, e.greetingInterval = time.Time{}, now, min(max(2*e.greetingInterval,
		e.cfg.RepeatInterval/16), e.cfg.RepeatInterval)
	g := wire.KeyGreeting{Salt: e.cfg.Keys.Salt}
	for _, p := range e.peers {
		k := wire.GreetingKey{To: wire.PeerAddress{ID: p.id, Boot: p.boot}, HoldsNeighborKey: p.theirSealer != nil}
		k.Wrapped, _ = wrapSenderKey(e.cfg.Keys, p.secret, e.headerTemplate, k.To) // no secret makes it fail
		g.Keys = append(g.Keys, k)
		if (p.theirSealer == nil || !p.hasOwnKey) && e.mixer.waitsFor(p.id) {
			e.greetAt(now)
		}
	}
	e.publish(controlPart, wire.AppendGreeting(nil, e.headOf(wire.PeerGreeting), &g))
}
