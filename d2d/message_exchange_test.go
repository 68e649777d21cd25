package d2d

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// pair returns two neighbours that have exchanged keys, and all messages that neighbour a has sent so far.
func pair(t *testing.T) (a, b *messageExchange[float64], said [][]byte) {
	t.Helper()
	w := newLinks[float64](t, 1, 2, 2, map[[2]int]float64{{0, 1}: 0.5}, fate{steps: 5})
	a, b = w.nodes[0].ex, w.nodes[1].ex
	now := time.Unix(0, 0)
	said = published(a.Step(now, Start{}))
	b.Step(now, Start{})
	for _, m := range said {
		b.Step(now, MessageReceived{m})
	}
	return a, b, append(said, published(a.Step(now, LocalStepTaken{}))...)
}

func published(effects []Effect) (payloads [][]byte) {
	for _, e := range effects {
		if p, ok := e.(PublishMessage); ok {
			payloads = append(payloads, p.Payload)
		}
	}
	return payloads
}

// TestTampering changes every byte of an encrypted snapshot and of a greeting. The receiver must reject each changed
// message without a panic.
func TestTampering(t *testing.T) {
	_, b, said := pair(t)
	now := time.Unix(0, 0)
	for _, good := range said {
		for i := range good {
			bad := slices.Clone(good)
			bad[i] ^= 0x10
			before := b.Stats()
			b.Step(now, MessageReceived{bad})
			b.Step(now, MessageReceived{bad[:i]})
			if b.mixer.edges[0].theirNextParameters != nil {
				t.Fatalf("byte %d: a changed snapshot was taken", i)
			}
			if b.Stats().AppliedFlows != before.AppliedFlows {
				t.Fatalf("byte %d: a flow", i)
			}
		}
	}
	b.Step(now, MessageReceived{said[len(said)-1]})
	if b.mixer.edges[0].theirNextParameters == nil {
		t.Errorf("the unchanged snapshot was not taken: %+v", b.Stats())
	}
}

// TestOtherBlocks replays messages of another run or round. The receiver must reject both unencrypted messages and an
// encrypted key whose header was changed to the current round.
func TestOtherBlocks(t *testing.T) {
	end := func(self, peer wire.AgentID, run wire.RunID, round wire.RoundID) (e *messageExchange[float64],
		said [][]byte) {
		e, err := newMessageExchange(MessageExchangeConfig[float64]{Self: self, Run: run, Round: round,
			MixingConfig: MixingConfig[float64]{
				Boot: 1, BlockSteps: 3, Neighbors: []Neighbor{{ID: peer, MixingWeight: 0.5, Boot: 1}},
				MaxSilentWaits:  1,
				SnapshotTimeout: time.Second, RepeatInterval: time.Second, DrainTimeout: time.Second}}, []float64{1})
		if err != nil {
			t.Fatal(err)
		}
		said = published(e.Step(time.Time{}, Start{}))
		return e, append(said, published(e.Step(time.Time{}, LocalStepTaken{}))...)
	}
	for _, other := range []struct {
		run   wire.RunID
		round wire.RoundID
		used  bool
	}{{1, 2, true}, {9, 2, false}, {1, 9, false}} {
		b, _ := end("b", "a", 1, 2)
		_, said := end("a", "b", other.run, other.round)
		for _, m := range said {
			b.Step(time.Time{}, MessageReceived{m})
		}
		if s := b.Stats(); (s.AppliedFlows == 1) != other.used ||
			(s.IgnoredMessagesByReason[IgnoreOtherRound] > 0) == other.used {
			t.Errorf("run %d, round %d: %+v", other.run, other.round, s)
		}
	}

	keys, theirs := &SealingKeys{SenderKey: [32]byte{1}, WrappingSalt: [16]byte{2}},
		[]byte("the secret that both devices derive")
	h := wire.PeerMessageHeader{Type: wire.PeerGreeting, Run: 1, Round: 2, Sender: "a", SenderBootEpoch: 3}
	to := wire.PeerInstance{ID: "b", BootEpoch: 4}
	wrapped, err := wrapSenderKey(keys, theirs, h, to)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(h *wire.PeerMessageHeader, to *wire.PeerInstance){
		"":                      func(*wire.PeerMessageHeader, *wire.PeerInstance) {},
		"run":                   func(h *wire.PeerMessageHeader, _ *wire.PeerInstance) { h.Run++ },
		"round":                 func(h *wire.PeerMessageHeader, _ *wire.PeerInstance) { h.Round++ },
		"sender":                func(h *wire.PeerMessageHeader, _ *wire.PeerInstance) { h.Sender = "c" },
		"start of the sender":   func(h *wire.PeerMessageHeader, _ *wire.PeerInstance) { h.SenderBootEpoch++ },
		"receiver":              func(_ *wire.PeerMessageHeader, to *wire.PeerInstance) { to.ID = "c" },
		"start of the receiver": func(_ *wire.PeerMessageHeader, to *wire.PeerInstance) { to.BootEpoch++ },
	} {
		h, to := h, to
		change(&h, &to)
		if _, err := unwrapSenderKey(theirs, h, to, keys.WrappingSalt[:], wrapped[:]); (err == nil) != (name == "") {
			t.Errorf("a key wrapped for another %q: %v", name, err)
		}
	}
}

// TestSealed checks that the parameters do not appear in published messages, since the messages are encrypted.
func TestSealed(t *testing.T) {
	a, _, said := pair(t)
	plain := wire.AppendVector(nil, a.mixer.parameters)
	for _, m := range said {
		if bytes.Contains(m, plain[:8]) || bytes.Contains(m, plain[8:]) {
			t.Errorf("a parameter stands open in a message")
		}
	}
}

// TestPartsOfAnotherStart checks that parts of a snapshot are discarded if the sending neighbour restarts and its new
// process sends a key. Parts from different processes must never be joined.
func TestPartsOfAnotherStart(t *testing.T) {
	now := time.Unix(0, 0)
	l := newLinks[float64](t, 1, 2, 13_000, map[[2]int]float64{{0, 1}: 0.5}, fate{steps: 5})
	a, b := l.nodes[0].ex, l.nodes[1].ex
	b.Step(now, Start{})
	for _, m := range published(a.Step(now, Start{})) {
		b.Step(now, MessageReceived{m})
	}
	parts := published(a.Step(now, LocalStepTaken{}))
	if b.Step(now, MessageReceived{parts[0]}); len(parts) < 2 || len(b.peers[0].partialSnapshots) != 1 {
		t.Fatalf("of %d parts, after the first: %d snapshots are under way", len(parts),
			len(b.peers[0].partialSnapshots))
	}
	h := wire.PeerMessageHeader{Type: wire.PeerGreeting, Run: 1, Round: 2, Sender: "n000", SenderBootEpoch: 2}
	to := wire.PeerInstance{ID: "n001", BootEpoch: 1}
	keys := l.nodes[0].cfg.Keys
	wrapped, err := wrapSenderKey(keys, a.peers[0].sharedSecret, h, to)
	if err != nil {
		t.Fatal(err)
	}
	b.Step(now, MessageReceived{wire.AppendKeyGreeting(nil, h, &wire.KeyGreeting{WrappingSalt: keys.WrappingSalt,
		WrappedKeys: []wire.WrappedSenderKey{{Receiver: to, WrappedKey: wrapped}}})})
	if p := b.peers[0]; p.knownPeerBoot != 2 || len(p.partialSnapshots) != 0 {
		t.Errorf("start %d, with %d snapshots of the start before", p.knownPeerBoot, len(p.partialSnapshots))
	}
}

// FuzzMessage passes fuzzed messages of neighbours to an exchange.
func FuzzMessage(f *testing.F) {
	w := newLinks[float64](&testing.T{}, 1, 2, 2, map[[2]int]float64{{0, 1}: 0.5}, fate{open: true, steps: 5})
	a := w.nodes[0].ex
	for _, m := range published(append(a.Step(time.Time{}, Start{}), a.Step(time.Time{}, LocalStepTaken{})...)) {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		w.nodes[1].ex.Step(time.Time{}, MessageReceived{payload})
	})
}

// FuzzNeighbor passes arbitrary messages that are correctly encrypted to an exchange, as a malicious neighbour could
// send them.
func FuzzNeighbor(f *testing.F) {
	l := bothStarted(&testing.T{}, false)
	a, b := l.nodes[0].ex, l.nodes[1].ex
	for _, m := range published(append(a.Step(time.Unix(0, 0), LocalStepTaken{}), a.Step(time.Unix(9, 0), Tick{})...)) {
		h, rest, err := wire.DecodePeerMessageHeader(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(h.Type), rest[:len(rest)-wire.PeerSealOverhead-wire.PeerProofSize], []byte{})
	}
	f.Fuzz(func(t *testing.T, typ uint8, said, text []byte) {
		h := headOf(wire.PeerMessageType(typ%uint8(wire.PeerBeacon) + 1))
		whole := wire.AppendKeyGreeting(nil, h, &wire.KeyGreeting{})
		_, rest, err := wire.DecodePeerMessageHeader(whole)
		if err != nil {
			t.Fatal(err)
		}
		whole = append(whole[:len(whole)-len(rest)], said...)
		n, all := sealNonce(h.Type, 0, 0), []edgeReceiver{{NeighborID: "n001"}}
		if s, _, err := wire.DecodeSnapshotPart(said); err == nil && h.Type == wire.PeerSnapshot {
			n, all = sealNonce(h.Type, s.PartIndex, s.Step), slices.Repeat(all, len(s.Receivers))
		} else if c, _, err := wire.DecodePeerControl(said); err == nil {
			n = sealNonce(h.Type, 0, c.SealCounter)
		}
		b.Step(time.Unix(0, 0), MessageReceived{a.appendSenderProofs(a.ownSealer.aead.Seal(whole, n, text, whole),
			all...)})
		for _, x := range b.mixer.parameters {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				t.Fatalf("the parameters are %v", b.mixer.parameters)
			}
		}
	})
}

// TestForbidden sends messages with exactly one error each. The receiver must ignore each message, count the correct
// reason, and keep its state unchanged.
func TestForbidden(t *testing.T) {
	now := time.Unix(0, 0)
	open, sealed := bothStarted(t, true), bothStarted(t, false)
	for _, tt := range forbiddenMessages(t, open, sealed) {
		b := tt.l.nodes[1].ex
		want := b.Stats().IgnoredMessagesByReason
		if tt.why != noReason {
			want[tt.why]++
		}
		b.Step(now, MessageReceived{tt.message})
		if got := b.Stats().IgnoredMessagesByReason; got != want {
			t.Errorf("%s: ignored %v, want %v", tt.name, got, want)
		}
		if b.mixer.edges[0].theirNextParameters != nil || b.peers[0].knownPeerBoot != 1 {
			t.Fatalf("%s: it was taken", tt.name)
		}
	}
	b := open.nodes[1].ex
	if b.Step(now, MessageReceived{snapshotOf(nil, 1, 2)}); b.mixer.edges[0].theirNextParameters == nil {
		t.Errorf("what is allowed was not taken: %+v", b.Stats())
	}
	keepsTwoIncomplete(t)
}

// keepsTwoIncomplete checks that an exchange keeps at most two incomplete snapshots.
func keepsTwoIncomplete(t *testing.T) {
	t.Helper()
	now := time.Unix(0, 0)
	many := newLinks[float64](t, 1, 2, 13_000, map[[2]int]float64{{0, 1}: 0.5}, fate{open: true, steps: 5}).nodes[1].ex
	many.Step(now, Start{})
	for step := range uint64(5) {
		m := snapshotOf(func(_ *wire.PeerMessageHeader, s *wire.SnapshotPartHeader) {
			s.Step, s.PartCount = step+1,
				uint16(many.snapshotPartCount())
		})
		many.Step(now, MessageReceived{append(m, make([]byte, wire.MaxSnapshotPart)...)})
		if n := len(many.peers[0].partialSnapshots); n != min(int(step)+1, 2) {
			t.Errorf("after %d of them %d are kept", step+1, n)
		}
	}
}

// forbidden is an invalid message to the second node, with the expected reason for ignoring the message.
type forbidden struct {
	name    string
	l       *links[float64]
	message []byte
	why     IgnoreReason
}

// noReason marks a message that must be ignored without counting a reason.
const noReason IgnoreReason = 255

// receiver identifies the second node, which receives the messages.
var receiver = wire.PeerInstance{ID: "n001", BootEpoch: 1}

// forbiddenMessages returns invalid messages, both for two nodes that exchange unencrypted messages and for two nodes
// that exchange encrypted messages.
func forbiddenMessages(t *testing.T, open, sealed *links[float64]) []forbidden {
	t.Helper()
	ask := wire.AppendPeerControl(nil, headOf(wire.PeerSnapshotRequest), &wire.PeerControlMessage{Receiver: receiver,
		SealCounter: 1,
		SnapshotSeq: 1})
	greeting := wire.AppendKeyGreeting(nil, headOf(wire.PeerGreeting), &wire.KeyGreeting{})
	mine := wire.AppendKeyGreeting(nil, headOf(wire.PeerGreeting),
		&wire.KeyGreeting{WrappedKeys: []wire.WrappedSenderKey{{Receiver: receiver}}})
	a := sealed.nodes[0]
	older := headOf(wire.PeerGreeting)
	older.SenderBootEpoch = 0
	wrapped, err := wrapSenderKey(a.cfg.Keys, a.ex.peers[0].sharedSecret, older, receiver)
	if err != nil {
		t.Fatal(err)
	}
	seal := make([]byte, wire.PeerSealOverhead)
	return []forbidden{
		{"noise", open, []byte("noise"), IgnoreMalformed},
		{"a beacon", open, wire.AppendBeacon(nil, headOf(wire.PeerBeacon), &wire.Beacon{}), IgnoreMalformed},
		{"its own", open, snapshotOf(sentBy("n001", 1), 1, 2), noReason},
		{"of its other start", open, snapshotOf(sentBy("n001", 2), 1, 2), IgnoreNotNeighbor},
		{"a stranger's", open, snapshotOf(sentBy("n009", 1), 1, 2), IgnoreNotNeighbor},
		{"a control cut short", open, ask[:len(ask)-1], IgnoreMalformed},
		{"a seal where there are none", open, slices.Concat(ask, seal), IgnoreMalformed},
		{"a key where there are none", open, mine, noReason},
		{"a snapshot's head cut short", open, snapshotOf(nil)[:50], IgnoreMalformed},
		{"of other parts", open, snapshotOf(func(_ *wire.PeerMessageHeader,
			s *wire.SnapshotPartHeader) {
			s.PartCount = 2
		}, 1, 2),
			IgnoreWrongDimension},
		{"for another", open, snapshotOf(func(_ *wire.PeerMessageHeader,
			s *wire.SnapshotPartHeader) {
			s.Receivers[0].ID = "n009"
		}, 1, 2),
			noReason},
		{"too short", open, snapshotOf(nil, 1), noReason},
		{"too long", open, snapshotOf(nil, 1, 2, 3), noReason},
		{"not a number", open, snapshotOf(nil, 1, math.NaN()), IgnoreNotFinite},
		{"a control with a wrong seal", sealed, slices.Concat(ask, seal), IgnoreUnsealFailed},
		{"a control without a seal", sealed, ask, IgnoreUnsealFailed},
		{"a snapshot with a wrong seal", sealed, slices.Concat(snapshotOf(nil, 1, 2), seal), IgnoreUnsealFailed},
		{"of a start whose key has not come", sealed, slices.Concat(snapshotOf(sentBy("n000", 2), 1, 2), seal),
			IgnoreNoKey},
		{"a greeting cut short", sealed, mine[:len(mine)-1], IgnoreMalformed},
		{"a greeting to others", sealed, greeting, noReason},
		{"a key that does not open", sealed, mine, IgnoreUnsealFailed},
		{"a greeting of an older start", sealed, wire.AppendKeyGreeting(nil, older,
			&wire.KeyGreeting{WrappingSalt: a.cfg.Keys.WrappingSalt,
				WrappedKeys: []wire.WrappedSenderKey{{Receiver: receiver, WrappedKey: wrapped}}}), IgnoreOtherBoot},
	}
}

// bothStarted returns two started nodes. The second node has received the greeting of the first node.
func bothStarted(t *testing.T, open bool) *links[float64] {
	t.Helper()
	now := time.Unix(0, 0)
	l := newLinks[float64](t, 1, 2, 2, map[[2]int]float64{{0, 1}: 0.5}, fate{open: open, steps: 5})
	l.nodes[1].ex.Step(now, Start{})
	for _, m := range published(l.nodes[0].ex.Step(now, Start{})) {
		l.nodes[1].ex.Step(now, MessageReceived{m})
	}
	return l
}

// headOf returns the header of a message of type p from the first node.
func headOf(p wire.PeerMessageType) wire.PeerMessageHeader {
	return wire.PeerMessageHeader{Type: p, Run: 1, Round: 2, Sender: "n000", SenderBootEpoch: 1}
}

// snapshotOf returns the message with the first node's snapshot of x after its first step. The function change modifies
// the message's headers; it may be nil.
func snapshotOf(change func(h *wire.PeerMessageHeader, s *wire.SnapshotPartHeader), x ...float64) []byte {
	h := headOf(wire.PeerSnapshot)
	s := wire.SnapshotPartHeader{Step: 1, PartCount: 1, Receivers: []wire.SnapshotReceiver{{PeerInstance: receiver,
		SnapshotSeq: 1}}}
	if change != nil {
		change(&h, &s)
	}
	m := wire.AppendSnapshotPartHeader(nil, h, &s)
	for _, v := range x {
		m = binary.LittleEndian.AppendUint64(m, math.Float64bits(v))
	}
	return m
}

// sentBy returns a function that replaces the sender in the headers of a snapshot message.
func sentBy(id wire.AgentID, boot wire.Epoch) func(*wire.PeerMessageHeader, *wire.SnapshotPartHeader) {
	return func(h *wire.PeerMessageHeader, _ *wire.SnapshotPartHeader) { h.Sender, h.SenderBootEpoch = id, boot }
}
