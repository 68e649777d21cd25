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

// MessageExchangeConfig extends MixingConfig by the names, keys and codec of the messages.
type MessageExchangeConfig[T wire.Float] struct {
	MixingConfig[T]
	Self  wire.AgentID
	Run   wire.RunID
	Round wire.RoundID
	Keys  *SealingKeys // keys for encrypting messages; nil means that messages are not encrypted
	// SenderProofs determines whether each message contains a proof of its sender. All agents of a block must use the
	// same value. It has no effect without Keys.
	SenderProofs bool
	Codec        spec.Codec // codec of snapshots; empty means spec.CodecRaw
	Rand         *rand.Rand // random source for codecs with random rounding; may be nil for other codecs
}

// messageExchange combines a mixer with its messages. It seals and opens messages, splits large snapshots, joins their
// parts, and distributes the keys. Its host only publishes, subscribes and computes local steps:
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
	peers              []*neighborPeer // neighbours, in the order of MixingConfig.Neighbors
	ownSealer          *senderSealer
	addsProofs         bool
	sealedPartsByStep  map[uint64][][]byte // encrypted messages of this agent's snapshots, by step
	sealedControlCount uint64              // number of control messages sent so far, used in nonces
	greetingAt         time.Time           // time at which the next greeting is sent; zero means that none is scheduled
	lastGreetingAt     time.Time
	greetingInterval   time.Duration // minimum time between two greetings; it doubles with each greeting
	codec              codec.Codec[T]
	snapshotBytes      int    // size of an encoded snapshot in bytes
	packedSnapshot     []byte // current snapshot after encoding
	effects            []Effect
}

// neighborPeer is the neighbouring agent at the other end of an edge.
type neighborPeer struct {
	id               wire.AgentID
	sharedSecret     []byte        // X25519 shared secret of the two devices
	knownPeerBoot    wire.Epoch    // boot epoch (process number) of the neighbour to which theirSealer belongs
	theirSealer      *senderSealer // cipher of the neighbour's messages; nil until the neighbour's greeting has arrived
	hasOurSenderKey  bool          // whether the neighbour has received this agent's key
	senderProofKeys  proofKeys     // keys for sender proofs on this edge
	partialSnapshots []*snapshotAssembly
	spareBuffer      []byte // buffer of the last complete snapshot, for reuse
}

// snapshotAssembly is a received snapshot that still lacks some of its parts.
type snapshotAssembly struct {
	step             uint64
	snapshotBytes    []byte
	hasPart          []bool
	missingPartCount int
}

// MessageReceived is delivered when a message on a neighbour's topic has arrived. Step decrypts the payload in place.
type MessageReceived struct{ Payload []byte }

// PublishMessage makes the host publish a message to the neighbours. TopicPart is the last level of the message's
// topic.
type PublishMessage struct {
	TopicPart string
	Payload   []byte
}

func (MessageReceived) event() {}
func (PublishMessage) effect() {}

// newMessageExchange returns an exchange that mixes the parameters x in place. It returns an error if there are too
// many neighbours or invalid keys.
func newMessageExchange[T wire.Float](cfg MessageExchangeConfig[T], x []T) (*messageExchange[T], error) {
	if len(cfg.Neighbors) > wire.MaxNeighbors {
		return nil, fmt.Errorf("%d neighbours exceed the limit of %d", len(cfg.Neighbors), wire.MaxNeighbors)
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
				return nil, fmt.Errorf("invalid key of neighbour %q: %w", n.ID, err)
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

// quantizeSnapshot encodes the snapshot x and replaces x by the values that the receivers will decode. Receivers ignore
// a snapshot with infinite elements or NaN.
func (e *messageExchange[T]) quantizeSnapshot(x []T) {
	e.packedSnapshot = e.codec.Append(e.packedSnapshot[:0], x, e.cfg.Rand)
	_ = e.codec.Decode(x, e.packedSnapshot)
}

// Stats returns the current counters.
func (e *messageExchange[T]) Stats() MixingStats { return e.mixer.Stats() }

// Deadline returns the time at which the caller must deliver the next Tick. It returns false if no Tick is needed.
func (e *messageExchange[T]) Deadline() (time.Time, bool) {
	at, ok := e.mixer.Deadline()
	if !e.greetingAt.IsZero() && (!ok || e.greetingAt.Before(at)) {
		return e.greetingAt, true
	}
	return at, ok
}

// Step processes one event (Start, LocalStepTaken, MessageReceived or Tick). It returns the effects to perform, in
// order: PublishMessage, computeLocalStep and mixingEnded.
func (e *messageExchange[T]) Step(now time.Time, ev Event) []Effect {
	e.effects = nil
	if m, ok := ev.(MessageReceived); ok {
		ev = e.openMessage(now, m.Payload)
	}
	if _, ok := ev.(Start); ok {
		e.scheduleGreeting(now)
	}
	e.sendDueGreeting(now)
	if ev != nil {
		e.performMixerEffects(now, e.mixer.Step(now, ev))
	}
	e.sendDueGreeting(now)
	return e.effects
}

// performMixerEffects converts the effects of the mixer to messages.
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
		default: // the host performs computeLocalStep and mixingEnded
			e.effects = append(e.effects, ef)
		}
	}
}

func peerInstanceOf(to edgeReceiver) wire.PeerInstance {
	return wire.PeerInstance{ID: to.NeighborID, BootEpoch: to.Boot}
}

// controlTopicPart is the last topic level of greetings and control messages. The parts of a snapshot use the topic
// levels from 1 on.
const controlTopicPart = "0"

func (e *messageExchange[T]) publishPayload(part string, payload []byte) {
	e.effects = append(e.effects, PublishMessage{part, payload})
}

func (e *messageExchange[T]) publishSnapshot(step uint64) {
	for i, payload := range e.sealedPartsByStep[step] {
		e.publishPayload(fmt.Sprint(i+1), payload)
	}
}

// sealSnapshot returns the encrypted messages that contain a snapshot. If Quantize is set, it has already encoded the
// snapshot.
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

// peerByID returns the neighbour with the given id, or nil if no neighbour has this id.
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

// scheduleGreeting schedules a greeting (a message with this agent's key), at least greetingInterval after the previous
// greeting. The interval is short at first: neighbours begin at about the same time, and an agent that has not
// subscribed yet misses the greeting.
func (e *messageExchange[T]) scheduleGreeting(now time.Time) {
	if e.cfg.Keys == nil {
		return
	}
	e.greetingAt = now
	if soonest := e.lastGreetingAt.Add(e.greetingInterval); !e.lastGreetingAt.IsZero() && soonest.After(now) {
		e.greetingAt = soonest
	}
}

// sendDueGreeting publishes a greeting if it is due. It schedules another greeting while either end of an edge lacks
// the other end's key.
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
		// The error is always nil for secrets derived by deriveSharedSecret.
		k.WrappedKey, _ = wrapSenderKey(e.cfg.Keys, p.sharedSecret, e.headerTemplate, k.Receiver)
		g.WrappedKeys = append(g.WrappedKeys, k)
		if (p.theirSealer == nil || !p.hasOurSenderKey) && e.mixer.waitsForNeighbor(p.id) {
			e.scheduleGreeting(now)
		}
	}
	e.publishPayload(controlTopicPart, wire.AppendKeyGreeting(nil, e.newMessageHeader(wire.PeerGreeting), &g))
}
