package transfer

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

const (
	firstManifestRepeatDelay = 2 * time.Second  // from a manifest to its first repeat, ± 25 %
	maxManifestRepeatDelay   = 30 * time.Second // the doubling of the repeats ends here
	manifestDelayAfterLease  = 10 * time.Second // from the end of a lease to the next manifest
	maxBurstChunks           = 8                // most chunks of one step
	// Bytes of a manifest without its hashes, with topic and framing; at most.
	manifestOverheadBytes = 512
)

// UpdateSender uploads one update. It repeats the manifest until the coordinator
// answers, and sends chunks only against a credit whose lease lasts, but for those that go with the first manifest.
//
// An update of up to wire.MaxInlineUpdate bytes travels in its manifest; the
// coordinator then gives no credit, and only the manifest is repeated.
type UpdateSender struct {
	manifest          wire.Manifest
	payload           []byte
	sealer            *wire.BlobSealer // of the chunks; nil = they are open
	maxStartDelay     time.Duration
	unsolicitedChunks int // chunks that go with the first manifest
	linkRate          LinkRate
	rng               *rand.Rand
	stats             SenderStats

	isStarted, isEnded, isConnected bool
	isNextManifestFirst             bool // the next manifest is the first that the coordinator gets

	nextManifestAt      time.Time     // of the next manifest
	manifestRepeatDelay time.Duration // from the next manifest to the one after
	pendingChunks       []int         // chunks of the credit that are still to be sent
	leaseEndsAt         time.Time     // end of the credit's lease
	linkFreeAt          time.Time     // when the link has carried what was sent on this session
	carriedAtByChunk    []time.Time   // by chunk: when the link has carried it; zero if it was not sent on this session
	lastStepAt          time.Time     // of the newest step
}

// NewUpdateSender returns an UpdateSender that uploads payload, which m describes. The first manifest waits a random
// time of up to spread, and the first chunks go with it, as many as ahead says. Chunks that the link may still be
// carrying, by its rate, are not sent again. The payload is not copied. NewUpdateSender panics if payload and m differ
// in length or spread is negative.
func NewUpdateSender(m wire.Manifest, payload []byte, spread time.Duration, ahead int, rate LinkRate,
	rng *rand.Rand) *UpdateSender {
	if len(payload) != int(m.BlobLength) || len(m.ChunkDigests) != wire.ChunkCount(len(payload)) || spread < 0 {
		panic(fmt.Sprintf("transfer: NewSender: payload of %d bytes, the manifest says %d in %d chunks; spread %v",
			len(payload), m.BlobLength, len(m.ChunkDigests), spread))
	}
	s := &UpdateSender{manifest: m, payload: payload, maxStartDelay: spread, linkRate: rate, rng: rng,
		isConnected:         true,
		isNextManifestFirst: true,
		carriedAtByChunk:    make([]time.Time, len(m.ChunkDigests))}
	if s.InlinePayload() == nil {
		s.unsolicitedChunks = min(ahead, len(m.ChunkDigests), maxBurstChunks)
	}
	return s
}

// InlinePayload returns the payload if it is to travel in the manifest, else nil.
func (s *UpdateSender) InlinePayload() []byte {
	if len(s.payload) <= wire.MaxInlineUpdate {
		return s.payload
	}
	return nil
}

// SetSealer has the chunks sealed from now on as the manifest says that goes out; with nil they are open.
func (s *UpdateSender) SetSealer(seal *wire.BlobSealer) { s.sealer = seal }

// ChunkMessage returns the message of chunk k.
func (s *UpdateSender) ChunkMessage(k int) []byte {
	return ChunkMessage(s.manifest.Hash, s.payload, k, s.sealer)
}

// Stats returns the counts so far.
func (s *UpdateSender) Stats() SenderStats { return s.stats }

// Deadline returns when the sender wants a Tick, if it does. While chunks wait
// for the next burst, that is at once.
func (s *UpdateSender) Deadline() (time.Time, bool) {
	if len(s.pendingChunks) > 0 {
		return s.lastStepAt, true
	}
	return s.nextManifestAt, !s.nextManifestAt.IsZero()
}

// Step takes one event and returns the effects to carry out, in order: at most
// one burst of chunks, so that the host can look after others in between.
func (s *UpdateSender) Step(now time.Time, ev SendEvent) []SendEffect {
	if s.isEnded {
		return nil
	}
	s.lastStepAt = now
	switch ev := ev.(type) {
	case Start:
		if !s.isStarted {
			s.isStarted = true
			s.restartUpload(now)
		}
	case LinkUp:
		s.isConnected = true
		s.forgetSentChunks()
		s.restartUpload(now)
	case LinkDown:
		s.isConnected = false
		s.restartUpload(now)
	case CoordinatorRestarted:
		clear(s.carriedAtByChunk)
		s.isNextManifestFirst = true
		s.restartUpload(now)
	case UpdateRequested:
		if !now.Before(s.leaseEndsAt) {
			s.restartUpload(now)
		}
	case CreditGranted:
		s.handleCredit(now, ev.ChunkCredit)
	case UpdateAccepted:
		if s.isOwnUpdate(ev.Update) {
			return s.endUpload(UploadFinished{IsAccepted: true})
		}
	case UpdateRefused:
		if s.isOwnUpdate(ev.Update) {
			return s.endUpload(UploadFinished{RefusalReason: ev.Reason})
		}
	case Cancel:
		return s.endUpload()
	case Tick:
		if !s.nextManifestAt.IsZero() && !now.Before(s.nextManifestAt) {
			return s.sendManifest(now)
		}
	}
	return s.sendChunkBurst(now)
}

// isOwnUpdate reports whether an answer is about this update.
func (s *UpdateSender) isOwnUpdate(update wire.Digest) bool {
	if update != s.manifest.Hash {
		s.stats.IgnoredAnswers++
		return false
	}
	return true
}

// restartUpload starts over on the present session, or waits for one. A credit ends with its session: chunks sent
// against it may be lost.
func (s *UpdateSender) restartUpload(now time.Time) {
	s.pendingChunks, s.nextManifestAt, s.leaseEndsAt = nil, time.Time{}, time.Time{}
	s.manifestRepeatDelay = firstManifestRepeatDelay
	if s.isStarted && s.isConnected {
		s.nextManifestAt = now.Add(time.Duration(s.rng.Int64N(int64(s.maxStartDelay) + 1)))
	}
}

// forgetSentChunks forgets the chunks that were on their way: they may be lost.
func (s *UpdateSender) forgetSentChunks() {
	clear(s.carriedAtByChunk)
	s.linkFreeAt = time.Time{}
}

// addLinkLoad adds bytes to the load of the link, and returns when the link has carried them.
func (s *UpdateSender) addLinkLoad(now time.Time, bytes int) time.Time {
	if s.linkFreeAt.Before(now) {
		s.linkFreeAt = now
	}
	s.linkFreeAt = s.linkFreeAt.Add(s.linkRate.sendTime(bytes))
	return s.linkFreeAt
}

func (s *UpdateSender) sendManifest(now time.Time) []SendEffect {
	s.pendingChunks = nil // the lease is long over
	carried := s.addLinkLoad(now,
		manifestOverheadBytes+len(s.InlinePayload())+len(s.manifest.ChunkDigests)*len(wire.Digest{}))
	s.nextManifestAt = carried.Add(jitteredDelay(s.rng, s.manifestRepeatDelay))
	s.manifestRepeatDelay = min(2*s.manifestRepeatDelay, maxManifestRepeatDelay)
	s.stats.SentManifests++
	if !s.isNextManifestFirst {
		return []SendEffect{SendManifest{}}
	}
	s.isNextManifestFirst = false
	effects := []SendEffect{SendManifest{UnsolicitedChunks: s.unsolicitedChunks}}
	for k := range s.unsolicitedChunks {
		effects = append(effects, s.sendChunk(now, k))
	}
	return effects
}

// sendChunk sends a chunk.
func (s *UpdateSender) sendChunk(now time.Time, k int) SendEffect {
	s.carriedAtByChunk[k] = s.addLinkLoad(now, maxChunkMessageBytes)
	s.stats.SentChunks++
	return SendChunk{k}
}

// handleCredit replaces the rest of an older credit.
func (s *UpdateSender) handleCredit(now time.Time, c wire.ChunkCredit) {
	if !s.isOwnUpdate(c.Update) {
		return
	}
	if !s.isStarted || !s.isConnected {
		s.stats.IgnoredAnswers++
		return
	}
	s.stats.ReceivedCredits++
	s.leaseEndsAt = now.Add(time.Duration(c.LeaseMillis) * time.Millisecond)
	s.nextManifestAt = s.leaseEndsAt.Add(manifestDelayAfterLease)
	s.manifestRepeatDelay = firstManifestRepeatDelay
	// Through a set, because ranges that overlap must not multiply the work.
	lent := make([]bool, len(s.manifest.ChunkDigests))
	for _, r := range c.Chunks {
		for k := r.First; k <= r.Last && k < uint32(len(lent)); k++ {
			lent[k] = true
		}
	}
	s.pendingChunks = nil
	// in when a chunk was carried, for one that the coordinator has not got yet
	doubt := s.linkRate.sendTime(maxChunkMessageBytes)
	for k, ok := range lent {
		switch {
		case ok && s.carriedAtByChunk[k].Add(doubt).After(now): // lent again too soon
			s.stats.HeldBackChunks++
		case ok:
			s.pendingChunks = append(s.pendingChunks, k)
		}
	}
}

// sendChunkBurst sends the next chunks of the credit, if its lease lasts.
func (s *UpdateSender) sendChunkBurst(now time.Time) []SendEffect {
	if !now.Before(s.leaseEndsAt) {
		s.pendingChunks = nil
	}
	n := min(maxBurstChunks, len(s.pendingChunks))
	effects := make([]SendEffect, n)
	for i, k := range s.pendingChunks[:n] {
		effects[i] = s.sendChunk(now, k)
	}
	s.pendingChunks = s.pendingChunks[n:]
	return effects
}

func (s *UpdateSender) endUpload(last ...SendEffect) []SendEffect {
	s.isEnded, s.pendingChunks, s.nextManifestAt = true, nil, time.Time{}
	return last
}
