package transfer

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

const (
	firstRepeat = 2 * time.Second  // from a manifest to its first repeat, ± 25 %
	lastRepeat  = 30 * time.Second // the doubling of the repeats ends here
	patience    = 10 * time.Second // from the end of a lease to the next manifest
	burst       = 8                // most chunks of one step
	envelope    = 512              // bytes of a manifest without its hashes, with topic and framing; at most
)

// Sender uploads one update. It repeats the manifest until the coordinator
// answers, and sends chunks only against a credit whose lease lasts, but for those that go with the first manifest.
//
// An update of up to wire.MaxInlineUpdate bytes travels in its manifest; the
// coordinator then gives no credit, and only the manifest is repeated.
type Sender struct {
	manifest          wire.Manifest
	payload           []byte
	seal              *wire.BlobSeal // of the chunks; nil = they are open
	startSpread       time.Duration
	unsolicitedChunks int // chunks that go with the first manifest
	rate              LinkRate
	rng               *rand.Rand
	stats             SenderStats

	started, ended, connected bool
	isFirstManifest           bool // the next manifest is the first that the coordinator gets

	announceAt       time.Time     // of the next manifest
	repeatDelay      time.Duration // from the next manifest to the one after
	pending          []int         // chunks of the credit that are still to be sent
	leaseEndsAt      time.Time     // end of the credit's lease
	linkFreeAt       time.Time     // when the link has carried what was sent on this session
	carriedAtByChunk []time.Time   // by chunk: when the link has carried it; zero if it was not sent on this session
	lastStepAt       time.Time     // of the newest step
}

// NewSender returns a Sender that uploads payload, which m describes. The first manifest waits a random time of up to
// spread, and the first chunks go with it, as many as ahead says. Chunks that the link may still be carrying, by its
// rate, are not sent again. The payload is not copied. NewSender panics if payload and m differ in length or spread is
// negative.
func NewSender(m wire.Manifest, payload []byte, spread time.Duration, ahead int, rate LinkRate,
	rng *rand.Rand) *Sender {
	if len(payload) != int(m.Length) || len(m.Chunks) != wire.ChunkCount(len(payload)) || spread < 0 {
		panic(fmt.Sprintf("transfer: NewSender: payload of %d bytes, the manifest says %d in %d chunks; spread %v",
			len(payload), m.Length, len(m.Chunks), spread))
	}
	s := &Sender{manifest: m, payload: payload, startSpread: spread, rate: rate, rng: rng, connected: true,
		isFirstManifest:  true,
		carriedAtByChunk: make([]time.Time, len(m.Chunks))}
	if s.Inline() == nil {
		s.unsolicitedChunks = min(ahead, len(m.Chunks), burst)
	}
	return s
}

// Inline returns the payload if it is to travel in the manifest, else nil.
func (s *Sender) Inline() []byte {
	if len(s.payload) <= wire.MaxInlineUpdate {
		return s.payload
	}
	return nil
}

// SetSeal has the chunks sealed from now on as the manifest says that goes out; with nil they are open.
func (s *Sender) SetSeal(seal *wire.BlobSeal) { s.seal = seal }

// Chunk returns the message of chunk k.
func (s *Sender) Chunk(k int) []byte { return ChunkMessage(s.manifest.Hash, s.payload, k, s.seal) }

// Stats returns the counts so far.
func (s *Sender) Stats() SenderStats { return s.stats }

// Deadline returns when the sender wants a Tick, if it does. While chunks wait
// for the next burst, that is at once.
func (s *Sender) Deadline() (time.Time, bool) {
	if len(s.pending) > 0 {
		return s.lastStepAt, true
	}
	return s.announceAt, !s.announceAt.IsZero()
}

// Step takes one event and returns the effects to carry out, in order: at most
// one burst of chunks, so that the host can look after others in between.
func (s *Sender) Step(now time.Time, ev SendEvent) []SendEffect {
	if s.ended {
		return nil
	}
	s.lastStepAt = now
	switch ev := ev.(type) {
	case Start:
		if !s.started {
			s.started = true
			s.restartSession(now)
		}
	case Connected:
		s.connected = true
		s.forgetSentChunks()
		s.restartSession(now)
	case Disconnected:
		s.connected = false
		s.restartSession(now)
	case CoordinatorRestarted:
		clear(s.carriedAtByChunk)
		s.isFirstManifest = true
		s.restartSession(now)
	case UpdateRequested:
		if !now.Before(s.leaseEndsAt) {
			s.restartSession(now)
		}
	case CreditGranted:
		s.handleCredit(now, ev.Credit)
	case UpdateAccepted:
		if s.isOwnUpdate(ev.Update) {
			return s.end(UploadFinished{Accepted: true})
		}
	case UpdateRefused:
		if s.isOwnUpdate(ev.Update) {
			return s.end(UploadFinished{Reason: ev.Reason})
		}
	case Cancel:
		return s.end()
	case Tick:
		if !s.announceAt.IsZero() && !now.Before(s.announceAt) {
			return s.announce(now)
		}
	}
	return s.burst(now)
}

// isOwnUpdate reports whether an answer is about this update.
func (s *Sender) isOwnUpdate(update wire.Digest) bool {
	if update != s.manifest.Hash {
		s.stats.IgnoredAnswers++
		return false
	}
	return true
}

// restartSession starts over on the present session, or waits for one. A credit ends with its session: chunks sent
// against it may be lost.
func (s *Sender) restartSession(now time.Time) {
	s.pending, s.announceAt, s.leaseEndsAt = nil, time.Time{}, time.Time{}
	s.repeatDelay = firstRepeat
	if s.started && s.connected {
		s.announceAt = now.Add(time.Duration(s.rng.Int64N(int64(s.startSpread) + 1)))
	}
}

// forgetSentChunks forgets the chunks that were on their way: they may be lost.
func (s *Sender) forgetSentChunks() {
	clear(s.carriedAtByChunk)
	s.linkFreeAt = time.Time{}
}

// chargeLink adds bytes to the load of the link, and returns when the link has carried them.
func (s *Sender) chargeLink(now time.Time, bytes int) time.Time {
	if s.linkFreeAt.Before(now) {
		s.linkFreeAt = now
	}
	s.linkFreeAt = s.linkFreeAt.Add(s.rate.sendTime(bytes))
	return s.linkFreeAt
}

func (s *Sender) announce(now time.Time) []SendEffect {
	s.pending = nil // the lease is long over
	carried := s.chargeLink(now, envelope+len(s.Inline())+len(s.manifest.Chunks)*len(wire.Digest{}))
	s.announceAt = carried.Add(jitter(s.rng, s.repeatDelay))
	s.repeatDelay = min(2*s.repeatDelay, lastRepeat)
	s.stats.Manifests++
	if !s.isFirstManifest {
		return []SendEffect{SendManifest{}}
	}
	s.isFirstManifest = false
	effects := []SendEffect{SendManifest{UnsolicitedChunks: s.unsolicitedChunks}}
	for k := range s.unsolicitedChunks {
		effects = append(effects, s.send(now, k))
	}
	return effects
}

// send sends a chunk.
func (s *Sender) send(now time.Time, k int) SendEffect {
	s.carriedAtByChunk[k] = s.chargeLink(now, maxChunkMessage)
	s.stats.Chunks++
	return SendChunk{k}
}

// handleCredit replaces the rest of an older credit.
func (s *Sender) handleCredit(now time.Time, c wire.Credit) {
	if !s.isOwnUpdate(c.Update) {
		return
	}
	if !s.started || !s.connected {
		s.stats.IgnoredAnswers++
		return
	}
	s.stats.ReceivedCredits++
	s.leaseEndsAt = now.Add(time.Duration(c.LeaseMillis) * time.Millisecond)
	s.announceAt = s.leaseEndsAt.Add(patience)
	s.repeatDelay = firstRepeat
	// Through a set, because ranges that overlap must not multiply the work.
	lent := make([]bool, len(s.manifest.Chunks))
	for _, r := range c.Chunks {
		for k := r.First; k <= r.Last && k < uint32(len(lent)); k++ {
			lent[k] = true
		}
	}
	s.pending = nil
	// in when a chunk was carried, for one that the coordinator has not got yet
	doubt := s.rate.sendTime(maxChunkMessage)
	for k, ok := range lent {
		switch {
		case ok && s.carriedAtByChunk[k].Add(doubt).After(now): // lent again too soon
			s.stats.HeldBackChunks++
		case ok:
			s.pending = append(s.pending, k)
		}
	}
}

// burst sends the next chunks of the credit, if its lease lasts.
func (s *Sender) burst(now time.Time) []SendEffect {
	if !now.Before(s.leaseEndsAt) {
		s.pending = nil
	}
	n := min(burst, len(s.pending))
	effects := make([]SendEffect, n)
	for i, k := range s.pending[:n] {
		effects[i] = s.send(now, k)
	}
	s.pending = s.pending[n:]
	return effects
}

func (s *Sender) end(last ...SendEffect) []SendEffect {
	s.ended, s.pending, s.announceAt = true, nil, time.Time{}
	return last
}
