package transfer

import (
	"bytes"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// script makes choices from fuzzed bytes. When the bytes are used up, it returns zeros.
type script []byte

func (s *script) pick(n int) int {
	if len(*s) == 0 {
		return 0
	}
	c := (*s)[0]
	*s = (*s)[1:]
	return int(c) % n
}

// fuzzSeeds adds scripts of random choices, so that plain test runs cover many cases.
func fuzzSeeds(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(blobOf(seed, 300))
	}
}

func FuzzReceiver(f *testing.F) {
	fuzzSeeds(f)
	blobs := [][]byte{blobOf(1, 1), blobOf(2, wire.MaxChunkBytes+5), blobOf(3, 3*wire.MaxChunkBytes), blobOf(4,
		2*wire.MaxChunkBytes)}
	var manifests []wire.Manifest
	for _, b := range blobs {
		manifests = append(manifests, manifestOf(b))
	}
	lying, long, odd := manifests[3], manifests[2], manifests[1]
	lying.Hash[31]++
	long.BlobLength = 1<<32 - 1
	odd.ChunkDigests = nil
	manifests = append(manifests, lying, long, odd, wire.Manifest{})
	blobs = append(blobs, blobs[3], blobs[2], blobs[1], []byte{0})
	agents := []wire.AgentID{"a", "b", "c", "d"}

	f.Fuzz(func(t *testing.T, data []byte) {
		s, now, raw := script(data), epoch, NewUpdateReceiver(tight())
		r := openingReceiver(raw)
		for len(s) > 0 {
			agent, i := agents[s.pick(4)], s.pick(len(blobs))
			var ev ReceiveEvent
			switch s.pick(9) {
			case 0, 1:
				o := UpdateOffer{Agent: agent, AgentBootEpoch: wire.Epoch(s.pick(3)), Manifest: manifests[i]}
				if s.pick(4) == 0 {
					o.InlinePayload = blobs[s.pick(len(blobs))]
				}
				ev = o
			case 2:
				ev = DropAgent{agent}
			case 4:
				ev = UpdateReleased{agent}
			case 3:
				now = now.Add(time.Duration(s.pick(20)) * time.Second)
				ev = Tick{}
			default:
				k := s.pick(wire.ChunkCount(len(blobs[i])))
				message := ChunkMessage(manifests[i].Hash, blobs[i], k, nil)
				ev = ChunkReceived{agent, UploadID(manifests[i].Hash), damaged(&s, message)}
			}
			for _, e := range r.Step(now, ev) {
				if c, ok := e.(UpdateComplete); ok && c.Digest != lying.Hash &&
					(wire.BlobDigest(bytesOf(c.Storage)) != c.Digest || !isOneOf(bytesOf(c.Storage), blobs)) {
					t.Fatalf("%s: a wrong result", c.Agent)
				}
			}
			checkReceiver(t, raw)
			if at, ok := r.Deadline(); ok && at.After(now.Add(raw.cfg.LeaseDuration)) {
				t.Fatalf("deadline in %v", at.Sub(now))
			}
		}
	})
}

// subscriptions simulates the subscriptions of a session. It checks the changes that a BlobPuller requests.
type subscriptions map[string]bool

func (s subscriptions) apply(t testing.TB, effects []PullEffect, window int) {
	t.Helper()
	for _, e := range effects {
		switch e := e.(type) {
		case SubscribeParts:
			for _, name := range e.Parts {
				if s[name] {
					t.Fatalf("part %s is subscribed to twice", name)
				}
				s[name] = true
			}
		case UnsubscribeParts:
			for _, name := range e.Parts {
				if !s[name] {
					t.Fatalf("part %s is not subscribed to", name)
				}
				delete(s, name)
			}
		case PullDone, PullFailed:
			if len(s) > 0 {
				t.Fatalf("ended with subscriptions %v", s)
			}
		}
		if len(s) > window+1 { // the limit is the window plus the manifest
			t.Fatalf("%d subscriptions, the window is %d", len(s), window)
		}
	}
}

func FuzzPuller(f *testing.F) {
	fuzzSeeds(f)
	blob := blobOf(5, 4*wire.MaxChunkBytes+9)
	ref, parts := published(f, blob)
	_, otherParts := published(f, blobOf(6, 2*wire.MaxChunkBytes))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, now := script(data), epoch
		cfg := PullerConfig{MaxBlobBytes: len(blob), WindowChunks: 1 + s.pick(6), FirstStallTimeout: time.Second,
			MaxStallTimeout: time.Second,
			MaxStalls:       1 + s.pick(3)}
		p, subs, ended := openingPuller(NewBlobPuller(cfg, ref, seeded(1))), subscriptions{}, false
		events := []PullEvent{Start{}, LinkUp{}, LinkDown{}, Tick{}, Cancel{}}
		for len(s) > 0 {
			var ev PullEvent
			switch i := s.pick(40); {
			case i < 5:
				ev = events[i]
			case i < 10:
				now = now.Add(time.Duration(s.pick(20)) * 100 * time.Millisecond)
				ev = Tick{}
			case i < 16:
				ev = PartReceived{ManifestPartName, damaged(&s, parts[ManifestPartName]), false}
			default:
				from := parts
				if s.pick(8) == 0 {
					from = otherParts
				}
				ev = PartReceived{ChunkPartName(s.pick(6)), damaged(&s, from[ChunkPartName(s.pick(5))]), false}
			}
			effects := p.Step(now, ev)
			if ended && len(effects) > 0 {
				t.Fatalf("%s after the end", describe(effects))
			}
			subs.apply(t, effects, cfg.WindowChunks)
			for _, e := range effects {
				switch e := e.(type) {
				case PullDone:
					ended = true
					if !bytes.Equal(bytesOf(e.Storage), blob) {
						t.Fatal("a wrong result")
					}
				case PullFailed:
					ended = true
				}
			}
		}
	})
}

// damaged returns the message, or a modified message in a quarter of the calls.
func damaged(s *script, message []byte) []byte {
	if s.pick(4) > 0 || len(message) == 0 {
		return message
	}
	message = bytes.Clone(message)
	switch s.pick(3) {
	case 0:
		return message[:s.pick(256)*len(message)/256]
	case 1:
		message[s.pick(64)%len(message)] ^= byte(1 + s.pick(255))
	default:
		message[len(message)-1-s.pick(64)%len(message)]++
	}
	return message
}

func isOneOf(p []byte, blobs [][]byte) bool {
	for _, b := range blobs {
		if bytes.Equal(p, b) {
			return true
		}
	}
	return false
}
