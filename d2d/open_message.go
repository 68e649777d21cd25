package d2d

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// open turns a message into the mixer's event; nil if it is none, yet.
func (e *exchange[T]) open(now time.Time, payload []byte) Event {
	h, rest, err := wire.DecodePeerMessageHeader(payload)
	switch {
	case err != nil, h.Type == wire.PeerBeacon, h.Type == wire.PeerSignedBeacon:
		return e.ignore(IgnoreMalformed)
	case h.From == e.cfg.Self && h.Boot == e.cfg.Boot:
		return nil // its own, as the broker gave it back
	case h.Run != e.cfg.Run || h.Round != e.cfg.Round:
		return e.ignore(IgnoreOtherRound)
	}
	p := e.peer(h.From)
	if p == nil {
		return e.ignore(IgnoreNotNeighbor)
	}
	if h.Type == wire.PeerGreeting {
		return e.openGreeting(now, p, h, rest)
	}
	if e.own != nil && (p.theirSealer == nil || p.boot != h.Boot) {
		e.greetAt(now)
		return e.ignore(IgnoreNoKey)
	}
	if h.Type == wire.PeerSnapshot {
		return e.openSnapshot(p, h, payload, rest)
	}
	c, seal, err := wire.DecodeControl(rest)
	if err != nil {
		return e.ignore(IgnoreMalformed)
	}
	if e.own == nil && len(seal) > 0 {
		return e.ignore(IgnoreMalformed)
	}
	if c.To.ID != e.cfg.Self {
		return nil
	}
	if e.own != nil {
		if payload, seal, err = e.checkProof(p, payload, seal, 0, 1); err != nil {
			return e.ignore(IgnoreUnsealFailed)
		}
		if _, err := p.theirSealer.aead.Open(nil, nonce(h.Type, 0, c.SealCounter), seal,
			payload[:len(payload)-len(seal)]); err != nil {
			return e.ignore(IgnoreUnsealFailed)
		}
	}
	from := messageSender{h.From, h.Boot, c.To.Boot}
	if h.Type == wire.PeerAsk {
		return snapshotRequested{from, c.SnapshotSeq}
	}
	return neighborFinished{from, c.SnapshotSeq, c.AppliedSeq, c.Drained}
}

func (e *exchange[T]) ignore(why IgnoreReason) Event {
	e.mixer.ignore(why)
	return nil
}

// openGreeting takes a neighbour's key, and gives it ours if it has not got it. The key opens only if the neighbour
// itself has wrapped it, in the start that it names; for which start of this program does not matter here.
func (e *exchange[T]) openGreeting(now time.Time, p *peer, h wire.PeerMessageHeader, rest []byte) Event {
	g, err := wire.DecodeGreeting(rest)
	if err != nil {
		return e.ignore(IgnoreMalformed)
	}
	i := slices.IndexFunc(g.Keys, func(k wire.GreetingKey) bool { return k.To.ID == e.cfg.Self })
	if i < 0 || e.own == nil {
		return nil
	}
	k := &g.Keys[i]
	key, err := unwrapSenderKey(p.secret, h, k.To, g.Salt[:], k.Wrapped[:])
	switch {
	case err != nil:
		return e.ignore(IgnoreUnsealFailed)
	case h.Boot < p.boot:
		return e.ignore(IgnoreOtherBoot)
	case h.Boot > p.boot:
		p.partialSnapshots = nil
	}
	p.theirSealer, p.boot, p.hasOwnKey = key, h.Boot, k.HoldsNeighborKey
	if !k.HoldsNeighborKey {
		e.greetAt(now)
	}
	return neighborGreeted{messageSender{h.From, h.Boot, k.To.Boot}}
}

// openSnapshot opens a part, and returns the snapshot when it is the last one.
func (e *exchange[T]) openSnapshot(p *peer, h wire.PeerMessageHeader, payload, rest []byte) Event {
	s, sealed, err := wire.DecodeSnapshotPart(rest)
	if err != nil {
		return e.ignore(IgnoreMalformed)
	}
	i := slices.IndexFunc(s.Receivers, func(to wire.SnapshotReceiver) bool { return to.ID == e.cfg.Self })
	if i < 0 {
		return nil // it has nothing new on this edge
	}
	from, seq := messageSender{h.From, h.Boot, s.Receivers[i].Boot}, s.Receivers[i].Seq
	switch {
	case !e.mixer.wants(h.From, seq):
		return e.ignore(IgnoreDuplicate)
	case int(s.PartCount) != e.parts():
		return e.ignore(IgnoreDimension)
	}
	part := sealed
	if e.own != nil {
		if payload, sealed, err = e.checkProof(p, payload, sealed, i, len(s.Receivers)); err != nil {
			return e.ignore(IgnoreUnsealFailed)
		}
		head := payload[:len(payload)-len(sealed)]
		if part, err = p.theirSealer.aead.Open(sealed[:0], nonce(wire.PeerSnapshot, s.PartIndex, s.Step), sealed,
			head); err != nil {
			return e.ignore(IgnoreUnsealFailed)
		}
	}
	data := p.addSnapshotPart(s, part, e.size)
	if data == nil {
		return nil
	}
	x := e.mixer.buffer()
	err = e.codec.Decode(x, data)
	if s.PartCount > 1 {
		p.spareBuffer = data
	}
	if err != nil {
		return e.ignore(IgnoreNotFinite)
	}
	return snapshotReceived[T]{from, seq, x}
}

// addSnapshotPart adds a part to its snapshot and returns that when it is whole. Two are
// under way at most: the neighbour's q-th and the one after it.
func (p *peer) addSnapshotPart(s wire.SnapshotPartHead, part []byte, size int) []byte {
	from := int(s.PartIndex) * wire.MaxSnapshotPart
	if from+len(part) > size || len(part) != min(wire.MaxSnapshotPart, size-from) {
		return nil
	}
	if s.PartCount == 1 {
		return part
	}
	i := slices.IndexFunc(p.partialSnapshots, func(a *snapshotAssembly) bool { return a.step == s.Step })
	if i < 0 {
		if len(p.partialSnapshots) == 2 { // the older one has become useless
			p.partialSnapshots = p.partialSnapshots[1:]
		}
		data := p.spareBuffer
		if p.spareBuffer = nil; data == nil {
			data = make([]byte, size)
		}
		p.partialSnapshots = append(p.partialSnapshots, &snapshotAssembly{s.Step, data, make([]bool, s.PartCount),
			int(s.PartCount)})
		i = len(p.partialSnapshots) - 1
	}
	a := p.partialSnapshots[i]
	if a.have[s.PartIndex] {
		return nil
	}
	copy(a.data[from:], part)
	a.have[s.PartIndex] = true
	if a.missing--; a.missing > 0 {
		return nil
	}
	p.partialSnapshots = slices.Delete(p.partialSnapshots, i, i+1)
	return a.data
}
