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

// MessageExchangeConfig adds to MixingConfig the names, keys and codec of the messages.
type MessageExchangeConfig[T wire.Float] struct {
	MixingConfig[T]
	Self  wire.AgentID
	Run   wire.RunID
	Round wire.RoundID
	Keys  *SealingKeys // nil = messages are not sealed, as on a trusted bench
	// SenderProofs has each message prove which neighbour has sent it; all of the block do, or none. Without keys none
	// can.
	SenderProofs bool
	Codec        spec.Codec // of snapshots; empty = raw
	Rand         *rand.Rand // of a codec that rounds at random; else it may be nil
}

// messageExchange is a mixer with its messages: it seals and opens them, splits large
// snapshots and joins their parts, and distributes the keys. Its host only
// publishes, subscribes and takes local steps:
//
//	effects := exchange.Step(now, Start{})
//	for {
//		carry out PublishMessage, computeLocalStep and mixingEnded, in order
//		effects = exchange.Step(now, MessageReceived{…}, LocalStepTaken{} or, at Deadline(), Tick{})
//	}
type messageExchange[T wire.Float] struct {
	cfg                MessageExchangeConfig[T]
	headerTemplate     wire.PeerMessageHeader
	mixer              *mixer[T]
	peers              []*neighborPeer // in the order of Config.Neighbors
	ownSealer          *senderSealer
	addsProofs         bool
	sealedPartsByStep  map[uint64][][]byte // sealed snapshots by step
	sealedControlCount uint64              // of sealed controls
	greetingAt         time.Time           // when the greeting is due; zero while it is not
	lastGreetingAt     time.Time           // of the last greeting
	greetingInterval   time.Duration       // least time to the next one
	codec              codec.Codec[T]
	snapshotBytes      int    // of a snapshot, in bytes
	packedSnapshot     []byte // the present snapshot
	effects            []Effect
}

// neighborPeer is the other end of an edge.
type neighborPeer struct {
	id               wire.AgentID
	sharedSecret     []byte        // shared by the two devices
	knownPeerBoot    wire.Epoch    // the start that key belongs to
	theirSealer      *senderSealer // nil until its greeting has come
	hasOurSenderKey  bool          // it has this agent's key
	senderProofKeys  proofKeys     // on this edge
	partialSnapshots []*snapshotAssembly
	spareBuffer      []byte // buffer of the last whole snapshot, for the next
}

// snapshotAssembly is a snapshot whose parts have not all come.
type snapshotAssembly struct {
	step             uint64
	snapshotBytes    []byte
	hasPart          []bool
	missingPartCount int
}

// MessageReceived is a message on a neighbour's topic. Step opens the payload in place.
type MessageReceived struct{ Payload []byte }

// PublishMessage asks the host to publish a message to the neighbours. TopicPart is the
// last level of its topic.
type PublishMessage struct {
	TopicPart string
	Payload   []byte
}

func (MessageReceived) event() {}
func (PublishMessage) effect() {}

// newMessageExchange returns an exchange that mixes x in place, as newMixer does. It fails on too many neighbours and
// on bad keys.
func newMessageExchange[T wire.Float](cfg MessageExchangeConfig[T], x []T) (*messageExchange[T], error) {
	if len(cfg.Neighbors) > wire.MaxNeighbors {
		return nil, fmt.Errorf("there are %d neighbours, at most %d are allowed", len(cfg.Neighbors), wire.MaxNeighbors)
	}
	e := &messageExchange[T]{
		cfg: cfg, codec: codec.ForName[T](cmp.Or(cfg.Codec, spec.CodecRaw)), sealedPartsByStep: map[uint64][][]byte{},
		headerTemplate: wire.PeerMessageHeader{Run: cfg.Run, Round: cfg.Round, Sender: cfg.Self,
			SenderBootEpoch: cfg.Boot},
	}
	if cfg.Keys != nil {
		own, err := newSenderSealer(cfg.Keys.SenderKey[:])
		if err != nil {
			return nil, err
		}
		e.ownSealer, e.addsProofs = own, cfg.SenderProofs
	}
	for _, n := range cfg.Neighbors {
		p := &neighborPeer{id: n.ID, knownPeerBoot: n.Boot, hasOurSenderKey: cfg.Keys == nil}
		if cfg.Keys != nil {
			var err error
			if p.sharedSecret, err = deriveSharedSecret(cfg.Keys.DevicePrivateKey, n.PublicKey); err != nil {
				return nil, fmt.Errorf("key of neighbour %q: %w", n.ID, err)
			}
			if p.senderProofKeys, err = newProofKeys(p.sharedSecret, e.headerTemplate, n.ID); err != nil {
				return nil, err
			}
		}
		e.peers = append(e.peers, p)
	}
	e.snapshotBytes = e.codec.EncodedSize(len(x))
	if cfg.Codec != "" && cfg.Codec != spec.CodecRaw {
		e.cfg.Quantize = e.quantizeSnapshot
	}
	e.mixer = newMixer(e.cfg.MixingConfig, x)
	return e, nil
}

// quantizeSnapshot packs a snapshot, and replaces it by what its receivers will have. One that is not finite they will
// ignore.
func (e *messageExchange[T]) quantizeSnapshot(x []T) {
	e.packedSnapshot = e.codec.Append(e.packedSnapshot[:0], x, e.cfg.Rand)
	_ = e.codec.Decode(x, e.packedSnapshot)
}

// Stats returns the counts so far.
func (e *messageExchange[T]) Stats() MixingStats { return e.mixer.Stats() }

// Deadline returns when the machine wants a Tick, if it does.
func (e *messageExchange[T]) Deadline() (time.Time, bool) {
	at, ok := e.mixer.Deadline()
	if !e.greetingAt.IsZero() && (!ok || e.greetingAt.Before(at)) {
		return e.greetingAt, true
	}
	return at, ok
}

// Step takes one event (Start, LocalStepTaken, MessageReceived or Tick) and returns the effects to carry out, in order:
// PublishMessage, computeLocalStep and mixingEnded.
func (e *messageExchange[T]) Step(now time.Time, ev Event) []Effect {
	e.effects = nil
	if m, ok := ev.(MessageReceived); ok {
		ev = e.openMessage(now, m.Payload)
	}
	if _, ok := ev.(Start); ok {
		e.scheduleGreeting(now)
	}
	e.sendDueGreeting(now) // before the messages that need its key
	if ev != nil {
		e.performMixerEffects(now, e.mixer.Step(now, ev))
	}
	e.sendDueGreeting(now)
	return e.effects
}

// performMixerEffects turns the mixer's effects into messages.
func (e *messageExchange[T]) performMixerEffects(now time.Time, effects []Effect) {
	for _, ef := range effects {
		switch ef := ef.(type) {
		case sendSnapshot[T]:
			e.sealedPartsByStep[ef.Step] = e.sealSnapshot(ef)
			e.publishSnapshot(ef.Step)
		case resendSnapshot:
			e.publishSnapshot(ef.Step)
		case releaseSnapshot:
			delete(e.sealedPartsByStep, ef.Step)
		case requestSnapshot:
			e.publishControlMessage(wire.PeerSnapshotRequest,
				wire.PeerControlMessage{Receiver: peerInstanceOf(ef.Receiver),
					SnapshotSeq: ef.Receiver.SnapshotSeq})
		case sendFinish:
			e.publishControlMessage(wire.PeerFinish, wire.PeerControlMessage{Receiver: peerInstanceOf(ef.Receiver),
				SnapshotSeq:    ef.Receiver.SnapshotSeq,
				AppliedFlowSeq: ef.AppliedFlowSeq,
				IsEdgeDrained:  ef.IsEdgeDrained})
		case sendGreeting:
			e.scheduleGreeting(now)
		default: // compute, ended
			e.effects = append(e.effects, ef)
		}
	}
}

func peerInstanceOf(to edgeReceiver) wire.PeerInstance {
	return wire.PeerInstance{ID: to.NeighborID, BootEpoch: to.Boot}
}

// controlTopicPart is the part of greetings and controls; a snapshot's have their numbers, from 1.
const controlTopicPart = "0"

func (e *messageExchange[T]) publishPayload(part string, payload []byte) {
	e.effects = append(e.effects, PublishMessage{part, payload})
}

func (e *messageExchange[T]) publishSnapshot(step uint64) {
	for i, payload := range e.sealedPartsByStep[step] {
		e.publishPayload(fmt.Sprint(i+1), payload)
	}
}

// sealSnapshot makes the messages of a snapshot, which quantize has packed just now where it must.
func (e *messageExchange[T]) sealSnapshot(s sendSnapshot[T]) [][]byte {
	if e.cfg.Quantize == nil {
		e.packedSnapshot = e.codec.Append(e.packedSnapshot[:0], s.Parameters, nil)
	}
	head := wire.SnapshotPartHeader{Step: s.Step, PartCount: uint16(e.snapshotPartCount())}
	for _, to := range s.Receivers {
		head.Receivers = append(head.Receivers, wire.SnapshotReceiver{PeerInstance: peerInstanceOf(to),
			SnapshotSeq: to.SnapshotSeq})
	}
	messages := make([][]byte, 0, e.snapshotPartCount())
	for part := range slices.Chunk(e.packedSnapshot, wire.MaxSnapshotPart) {
		head.PartIndex = uint16(len(messages))
		m := wire.AppendSnapshotPartHeader(make([]byte, 0, 64+64*len(head.Receivers)+len(part)+wire.PeerSealOverhead),
			e.newMessageHeader(wire.PeerSnapshot), &head)
		if e.ownSealer == nil {
			m = append(m, part...)
		} else {
			m = e.ownSealer.aead.Seal(m, sealNonce(wire.PeerSnapshot, head.PartIndex, s.Step), part, m)
			m = e.appendSenderProofs(m, s.Receivers...)
		}
		messages = append(messages, m)
	}
	return messages
}

// peerByID returns the other end of an edge; nil if there is none.
func (e *messageExchange[T]) peerByID(id wire.AgentID) *neighborPeer {
	i := slices.IndexFunc(e.peers, func(p *neighborPeer) bool { return p.id == id })
	if i < 0 {
		return nil
	}
	return e.peers[i]
}

func (e *messageExchange[T]) newMessageHeader(t wire.PeerMessageType) wire.PeerMessageHeader {
	h := e.headerTemplate
	h.Type = t
	return h
}

func (e *messageExchange[T]) snapshotPartCount() int {
	return max(1, (e.snapshotBytes+wire.MaxSnapshotPart-1)/wire.MaxSnapshotPart)
}

func (e *messageExchange[T]) publishControlMessage(t wire.PeerMessageType, c wire.PeerControlMessage) {
	e.sealedControlCount++
	c.SealCounter = e.sealedControlCount
	m := wire.AppendPeerControl(nil, e.newMessageHeader(t), &c)
	if e.ownSealer != nil {
		m = e.ownSealer.aead.Seal(m, sealNonce(t, 0, c.SealCounter), nil, m)
		m = e.appendSenderProofs(m, edgeReceiver{NeighborID: c.Receiver.ID})
	}
	e.publishPayload(controlTopicPart, m)
}

// scheduleGreeting plans a greeting, at least the gap after the last one. Gaps are short at first: neighbours begin
// within moments of each other, and one that has not subscribed yet misses the greeting.
func (e *messageExchange[T]) scheduleGreeting(now time.Time) {
	if e.cfg.Keys == nil {
		return
	}
	e.greetingAt = now
	if soonest := e.lastGreetingAt.Add(e.greetingInterval); !e.lastGreetingAt.IsZero() && soonest.After(now) {
		e.greetingAt = soonest
	}
}

// sendDueGreeting publishes the greeting when it is due, and plans the next one while a key is missing somewhere.
func (e *messageExchange[T]) sendDueGreeting(now time.Time) {
	if e.greetingAt.IsZero() || now.Before(e.greetingAt) {
		return
	}
	e.greetingAt, e.lastGreetingAt, e.greetingInterval = time.Time{}, now, min(max(2*e.greetingInterval,
		e.cfg.RepeatInterval/16), e.cfg.RepeatInterval)
	g := wire.KeyGreeting{WrappingSalt: e.cfg.Keys.WrappingSalt}
	for _, p := range e.peers {
		k := wire.WrappedSenderKey{Receiver: wire.PeerInstance{ID: p.id, BootEpoch: p.knownPeerBoot},
			HoldsNeighborKey: p.theirSealer != nil}
		// no secret makes it fail
		k.WrappedKey, _ = wrapSenderKey(e.cfg.Keys, p.sharedSecret, e.headerTemplate, k.Receiver)
		g.WrappedKeys = append(g.WrappedKeys, k)
		if (p.theirSealer == nil || !p.hasOurSenderKey) && e.mixer.waitsForNeighbor(p.id) {
			e.scheduleGreeting(now)
		}
	}
	e.publishPayload(controlTopicPart, wire.AppendKeyGreeting(nil, e.newMessageHeader(wire.PeerGreeting), &g))
}
