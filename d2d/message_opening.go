package d2d

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// openMessage decrypts a message and returns the resulting event for the mixer. It returns nil if more parts are
// needed.
func (e *messageExchange[T]) openMessage(now time.Time, payload []byte) Event {
	h, rest, err := wire.DecodePeerMessageHeader(payload)
	switch {
	case err != nil, h.Type == wire.PeerBeacon, h.Type == wire.PeerSignedBeacon:
		return e.countIgnoredMessage(IgnoreMalformed)
	case h.Sender == e.cfg.Self && h.SenderBootEpoch == e.cfg.Boot:
		return nil
	case h.Run != e.cfg.Run || h.Round != e.cfg.Round:
		return e.countIgnoredMessage(IgnoreOtherRound)
	}
	p := e.peerByID(h.Sender)
	if p == nil {
		return e.countIgnoredMessage(IgnoreNotNeighbor)
	}
	if h.Type == wire.PeerGreeting {
		return e.openGreeting(now, p, h, rest)
	}
	if e.ownSealer != nil && (p.theirSealer == nil || p.knownPeerBoot != h.SenderBootEpoch) {
		e.scheduleGreeting(now)
		return e.countIgnoredMessage(IgnoreNoKey)
	}
	if h.Type == wire.PeerSnapshot {
		return e.openSnapshotPart(p, h, payload, rest)
	}
	c, seal, err := wire.DecodePeerControl(rest)
	if err != nil {
		return e.countIgnoredMessage(IgnoreMalformed)
	}
	if e.ownSealer == nil && len(seal) > 0 {
		return e.countIgnoredMessage(IgnoreMalformed)
	}
	if c.Receiver.ID != e.cfg.Self {
		return nil
	}
	if e.ownSealer != nil {
		if payload, seal, err = e.checkSenderProof(p, payload, seal, 0, 1); err != nil {
			return e.countIgnoredMessage(IgnoreUnsealFailed)
		}
		if _, err := p.theirSealer.aead.Open(nil, sealNonce(h.Type, 0, c.SealCounter), seal,
			payload[:len(payload)-len(seal)]); err != nil {
			return e.countIgnoredMessage(IgnoreUnsealFailed)
		}
	}
	from := messageSender{h.Sender, h.SenderBootEpoch, c.Receiver.BootEpoch}
	if h.Type == wire.PeerSnapshotRequest {
		return snapshotRequested{from, c.SnapshotSeq}
	}
	return neighborFinished{from, c.SnapshotSeq, c.AppliedFlowSeq, c.IsEdgeDrained}
}

func (e *messageExchange[T]) countIgnoredMessage(why IgnoreReason) Event {
	e.mixer.countIgnoredMessage(why)
	return nil
}

// openGreeting stores a neighbour's key, and schedules a greeting if the neighbour lacks this agent's key. Decrypting
// the key succeeds only if the neighbour itself has encrypted the key, in the process (boot epoch) given in the header.
// This function does not check the receiver's boot epoch.
func (e *messageExchange[T]) openGreeting(now time.Time, p *neighborPeer, h wire.PeerMessageHeader, rest []byte) Event {
	g, err := wire.DecodeKeyGreeting(rest)
	if err != nil {
		return e.countIgnoredMessage(IgnoreMalformed)
	}
	i := slices.IndexFunc(g.WrappedKeys, func(k wire.WrappedSenderKey) bool { return k.Receiver.ID == e.cfg.Self })
	if i < 0 || e.ownSealer == nil {
		return nil
	}
	k := &g.WrappedKeys[i]
	key, err := unwrapSenderKey(p.sharedSecret, h, k.Receiver, g.WrappingSalt[:], k.WrappedKey[:])
	switch {
	case err != nil:
		return e.countIgnoredMessage(IgnoreUnsealFailed)
	case h.SenderBootEpoch < p.knownPeerBoot:
		return e.countIgnoredMessage(IgnoreOtherBoot)
	case h.SenderBootEpoch > p.knownPeerBoot:
		p.partialSnapshots = nil
	}
	p.theirSealer, p.knownPeerBoot, p.hasOurSenderKey = key, h.SenderBootEpoch, k.HoldsNeighborKey
	if !k.HoldsNeighborKey {
		e.scheduleGreeting(now)
	}
	return neighborGreeted{messageSender{h.Sender, h.SenderBootEpoch, k.Receiver.BootEpoch}}
}

// openSnapshotPart decrypts one part of a snapshot. It returns the snapshot when all parts have arrived.
func (e *messageExchange[T]) openSnapshotPart(p *neighborPeer, h wire.PeerMessageHeader, payload, rest []byte) Event {
	s, sealed, err := wire.DecodeSnapshotPart(rest)
	if err != nil {
		return e.countIgnoredMessage(IgnoreMalformed)
	}
	i := slices.IndexFunc(s.Receivers, func(to wire.SnapshotReceiver) bool { return to.ID == e.cfg.Self })
	if i < 0 {
		return nil
	}
	from, seq := messageSender{h.Sender, h.SenderBootEpoch, s.Receivers[i].BootEpoch}, s.Receivers[i].SnapshotSeq
	switch {
	case !e.mixer.needsNeighborSnapshot(h.Sender, seq):
		return e.countIgnoredMessage(IgnoreDuplicate)
	case int(s.PartCount) != e.snapshotPartCount():
		return e.countIgnoredMessage(IgnoreWrongDimension)
	}
	part := sealed
	if e.ownSealer != nil {
		if payload, sealed, err = e.checkSenderProof(p, payload, sealed, i, len(s.Receivers)); err != nil {
			return e.countIgnoredMessage(IgnoreUnsealFailed)
		}
		head := payload[:len(payload)-len(sealed)]
		if part, err = p.theirSealer.aead.Open(sealed[:0], sealNonce(wire.PeerSnapshot, s.PartIndex, s.Step), sealed,
			head); err != nil {
			return e.countIgnoredMessage(IgnoreUnsealFailed)
		}
	}
	data := p.addSnapshotPart(s, part, e.snapshotBytes)
	if data == nil {
		return nil
	}
	x := e.mixer.takeSnapshotBuffer()
	err = e.codec.Decode(x, data)
	if s.PartCount > 1 {
		p.spareBuffer = data
	}
	if err != nil {
		return e.countIgnoredMessage(IgnoreNotFinite)
	}
	return snapshotReceived[T]{from, seq, x}
}

// addSnapshotPart adds a part to the snapshot that it belongs to, and returns the snapshot if it is complete. At most
// two snapshots can be incomplete: the neighbour's current snapshot, with the sequence number q, and the next one.
func (p *neighborPeer) addSnapshotPart(s wire.SnapshotPartHeader, part []byte, size int) []byte {
	from := int(s.PartIndex) * wire.MaxSnapshotPart
	if from+len(part) > size || len(part) != min(wire.MaxSnapshotPart, size-from) {
		return nil
	}
	if s.PartCount == 1 {
		return part
	}
	i := slices.IndexFunc(p.partialSnapshots, func(a *snapshotAssembly) bool { return a.step == s.Step })
	if i < 0 {
		if len(p.partialSnapshots) == 2 {
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
	if a.hasPart[s.PartIndex] {
		return nil
	}
	copy(a.snapshotBytes[from:], part)
	a.hasPart[s.PartIndex] = true
	if a.missingPartCount--; a.missingPartCount > 0 {
		return nil
	}
	p.partialSnapshots = slices.Delete(p.partialSnapshots, i, i+1)
	return a.snapshotBytes
}
