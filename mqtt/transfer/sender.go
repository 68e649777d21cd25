package transfer

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

const (
	firstManifestRepeatDelay = 2 * time.Second  // delay from a manifest to its first repeat, ± 25 %
	maxManifestRepeatDelay   = 30 * time.Second // maximum delay between repeats of the manifest
	manifestDelayAfterLease  = 10 * time.Second // delay between the end of a lease and the next manifest
	maxBurstChunks           = 8                // maximum number of chunks that one step sends
	// manifestOverheadBytes is the maximum size of a manifest message without its hashes, including topic and framing.
	manifestOverheadBytes = 512
)

// UpdateSender uploads one update. It repeats the manifest until the coordinator answers. It sends chunks only while it
// has a credit (permission that expires) from the coordinator, except for the chunks that follow the first manifest.
//
// An update of up to wire.MaxInlineUpdate bytes is sent inside its manifest. The coordinator then grants no credit, and
// only the manifest is repeated.
type UpdateSender struct {
	manifest          wire.Manifest
	payload           []byte
	sealer            *wire.BlobSealer // encrypts the chunks; nil = the chunks are not encrypted
	maxStartDelay     time.Duration
	unsolicitedChunks int // number of chunks sent with the first manifest
	linkRate          LinkRate
	rng               *rand.Rand
	stats             SenderStats

	isStarted, isEnded, isConnected bool
	isNextManifestFirst             bool

	nextManifestAt      time.Time     // time of the next manifest; zero if no manifest is scheduled
	manifestRepeatDelay time.Duration // delay after the next manifest; doubles with each repeat
	pendingChunks       []int         // credited chunks that have not been sent
	leaseEndsAt         time.Time     // end of the credit's lease
	linkFreeAt          time.Time     // estimated time at which the link has transmitted all sent data
	carriedAtByChunk    []time.Time
	lastStepAt          time.Time
}

// NewUpdateSender returns an UpdateSender that uploads payload, which m describes and which is not copied. It sends the
// first manifest after a random delay of up to spread. The first ahead chunks follow without a credit. A chunk that may
// still be in transit, according to the link rate, is not sent again. NewUpdateSender panics if payload and m differ in
// length or spread is negative.
func NewUpdateSender(m wire.Manifest, payload []byte, spread time.Duration, ahead int, rate LinkRate,
	rng *rand.Rand) *UpdateSender {
	if len(payload) != int(m.BlobLength) || len(m.ChunkDigests) != wire.ChunkCount(len(payload)) || spread < 0 {
		panic(fmt.Sprintf("transfer: NewUpdateSender: invalid arguments: payload has %d bytes, manifest has %d bytes "+
			"in %d chunks, spread is %v",
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

// InlinePayload returns the payload if it is sent inside the manifest, and nil otherwise.
func (s *UpdateSender) InlinePayload() []byte {
	if len(s.payload) <= wire.MaxInlineUpdate {
		return s.payload
	}
	return nil
}

// SetSealer sets the sealer that encrypts chunks from now on. It must match the next manifest. Nil means no encryption.
func (s *UpdateSender) SetSealer(seal *wire.BlobSealer) { s.sealer = seal }

// ChunkMessage returns the message of chunk k.
func (s *UpdateSender) ChunkMessage(k int) []byte {
	return ChunkMessage(s.manifest.Hash, s.payload, k, s.sealer)
}

// Stats returns the current counters.
func (s *UpdateSender) Stats() SenderStats { return s.stats }

// Deadline returns the time of the next Tick. While chunks wait for the next burst, it is the time of the last step. It
// reports false if no Tick is needed.
func (s *UpdateSender) Deadline() (time.Time, bool) {
	if len(s.pendingChunks) > 0 {
		return s.lastStepAt, true
	}
	return s.nextManifestAt, !s.nextManifestAt.IsZero()
}

// Step processes one event and returns the effects to perform, in order. They contain at most one burst of chunks, so
// that the host can process other events in between.
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

// isOwnUpdate reports whether an answer concerns this update.
func (s *UpdateSender) isOwnUpdate(update wire.Digest) bool {
	if update != s.manifest.Hash {
		s.stats.IgnoredAnswers++
		return false
	}
	return true
}

// restartUpload starts the upload again on the current session, or waits for the next one. It discards the credit,
// because chunks sent before may be lost.
func (s *UpdateSender) restartUpload(now time.Time) {
	s.pendingChunks, s.nextManifestAt, s.leaseEndsAt = nil, time.Time{}, time.Time{}
	s.manifestRepeatDelay = firstManifestRepeatDelay
	if s.isStarted && s.isConnected {
		s.nextManifestAt = now.Add(time.Duration(s.rng.Int64N(int64(s.maxStartDelay) + 1)))
	}
}

// forgetSentChunks clears the times of the sent chunks, which may be lost.
func (s *UpdateSender) forgetSentChunks() {
	clear(s.carriedAtByChunk)
	s.linkFreeAt = time.Time{}
}

// addLinkLoad adds bytes to the estimated load of the link. It returns the time at which the link will have transmitted
// these bytes.
func (s *UpdateSender) addLinkLoad(now time.Time, bytes int) time.Time {
	if s.linkFreeAt.Before(now) {
		s.linkFreeAt = now
	}
	s.linkFreeAt = s.linkFreeAt.Add(s.linkRate.sendTime(bytes))
	return s.linkFreeAt
}

func (s *UpdateSender) sendManifest(now time.Time) []SendEffect {
	s.pendingChunks = nil
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

// sendChunk records that chunk k is sent and returns the effect that publishes it.
func (s *UpdateSender) sendChunk(now time.Time, k int) SendEffect {
	s.carriedAtByChunk[k] = s.addLinkLoad(now, maxChunkMessageBytes)
	s.stats.SentChunks++
	return SendChunk{k}
}

// handleCredit replaces the current credit with c.
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
	// Use a set, so that overlapping ranges do not multiply the work.
	lent := make([]bool, len(s.manifest.ChunkDigests))
	for _, r := range c.Chunks {
		for k := r.First; k <= r.Last && k < uint32(len(lent)); k++ {
			lent[k] = true
		}
	}
	s.pendingChunks = nil
	// doubt allows for the error in the estimated arrival time of a chunk.
	doubt := s.linkRate.sendTime(maxChunkMessageBytes)
	for k, ok := range lent {
		switch {
		case ok && s.carriedAtByChunk[k].Add(doubt).After(now):
			s.stats.HeldBackChunks++
		case ok:
			s.pendingChunks = append(s.pendingChunks, k)
		}
	}
}

// sendChunkBurst sends the next credited chunks, unless the lease of the credit has ended.
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
