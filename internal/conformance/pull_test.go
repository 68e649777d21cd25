package conformance

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// blobOf returns n pseudo-random bytes that depend only on the seed.
func blobOf(seed uint64, n int) []byte {
	var key [32]byte
	key[0] = byte(seed)
	p := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(p) // Read never fails.
	return p
}

// retain publishes a blob as retained messages. It publishes one message at a time, because the outbox is bounded.
func retain(t *testing.T, s *mqtt.Session, blob []byte) wire.BlobRef {
	t.Helper()
	ref, parts, err := transfer.BlobMessages(blob, wire.Digest{1})
	if err != nil {
		t.Fatal(err)
	}
	topics := hosts.TopicsOf(t, federation)
	for part, payload := range parts {
		mqtttest.Publish(t, s, mqtt.Message{Topic: topics.BlobPart(ref.Hash.TopicLevel(), part), Payload: payload,
			QoS: mqtt.AtLeastOnce, Retained: true})
		mqtttest.SyncWithBroker(t, s)
	}
	return ref
}

// pull downloads a blob into a storage as an agent does. pull is safe for concurrent use.
func pull(s *mqtt.Session, topics mqtt.Topics, ref wire.BlobRef, rng *rand.Rand,
	storage transfer.ChunkStorage) (transfer.PullerStats, error) {
	p := transfer.NewBlobPuller(transfer.DefaultPullerConfig(), ref, rng)
	names := func(parts []string) []string {
		of := make([]string, len(parts))
		for i, part := range parts {
			of[i] = topics.BlobPart(ref.Hash.TopicLevel(), part)
		}
		return of
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var ev transfer.PullEvent = transfer.Start{}
	for {
		effects := p.Step(time.Now(), ev)
		ev = nil
		for _, e := range effects {
			switch e := e.(type) {
			case transfer.SubscribeParts:
				s.Subscribe(mqtt.AtMostOnce, names(e.Parts)...)
			case transfer.UnsubscribeParts:
				s.Unsubscribe(names(e.Parts)...)
			case transfer.OpenStorage:
				ev = transfer.StorageOpened{BlobDigest: e.Manifest.Hash, Storage: storage}
			case transfer.PullDone:
				return p.Stats(), nil
			case transfer.PullFailed:
				return p.Stats(), e.Err
			}
		}
		if ev != nil {
			continue
		}
		if at, ok := p.Deadline(); ok {
			timer.Reset(time.Until(at))
		}
		ev = nextPullEvent(s, timer.C)
	}
}

func nextPullEvent(s *mqtt.Session, timer <-chan time.Time) transfer.PullEvent {
	select {
	case <-timer:
		return transfer.Tick{}
	case e, open := <-s.Events():
		switch e := e.(type) {
		case mqtt.MessageReceived:
			return transfer.PartReceived{PartName: e.Topic[strings.LastIndexByte(e.Topic, '/')+1:], Payload: e.Payload}
		case mqtt.LinkDown:
			return transfer.LinkDown{}
		case mqtt.LinkUp:
			return transfer.LinkUp{}
		}
		if !open {
			return transfer.Cancel{}
		}
		return transfer.Tick{}
	}
}

// wantBlob downloads a blob into a storage over a new session. The download verifies the hash of each chunk.
func wantBlob(t *testing.T, o mqtt.Options, topics mqtt.Topics, ref wire.BlobRef, storage transfer.ChunkStorage) {
	t.Helper()
	s, err := mqtt.Dial(context.Background(), o)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = s.Close() }()
	stats, err := pull(s, topics, ref, rand.New(rand.NewPCG(uint64(len(o.ClientID)), 1)), storage)
	if chunks := wire.ChunkCount(int(ref.Length)); err != nil || stats.StoredChunks != uint64(chunks) {
		t.Errorf("%s got %d of %d chunks: %v; %+v", o.ClientID, stats.StoredChunks, chunks, err, stats)
	}
}

// nowhere is a storage that discards its chunks, because fifty stored models would need too much memory.
type nowhere struct{}

func (nowhere) HasChunk(int) bool          { return false }
func (nowhere) PutChunk(int, []byte) error { return nil }
func (nowhere) Close() error               { return nil }

// testLateJoiner downloads a blob from a broker that retains 3,000 messages. A single subscription to all of these
// messages would lose most of them, because Mosquitto drops messages beyond its limits of in-flight and queued
// messages.
func testLateJoiner(t *testing.T, s subject) {
	const others = 3000
	b := s.start(t, needs{})
	topics := hosts.TopicsOf(t, federation)
	o := b.as(anyOne(0))
	o.OutboxMessages = others + 10
	publisher := mqtttest.Dial(t, o)
	for k := range others {
		hash := fmt.Sprintf("%032x", k/100)
		mqtttest.Publish(t, publisher, mqtt.Message{Topic: topics.BlobPart(hash, transfer.ChunkPartName(k%100)),
			Payload: make([]byte, 500), QoS: mqtt.AtLeastOnce, Retained: true})
	}
	blob := blobOf(1, 50*wire.MaxChunkBytes+17)
	ref := retain(t, publisher, blob)
	var all sync.WaitGroup
	for i := range 3 {
		o := b.as(anyOne(i + 1))
		all.Go(func() {
			got := transfer.NewMemoryChunkStorage(len(blob))
			wantBlob(t, o, topics, ref, got)
			if !bytes.Equal(bytes.Join(got.ChunkPayloads(), nil), blob) {
				t.Error("the blob that came is another")
			}
		})
	}
	all.Wait()
}
