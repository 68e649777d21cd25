package conformance

import (
	"context"
	"crypto/ed25519"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/wire"
)

func testBurst(t *testing.T, s subject) { burst(t, s, false) }

// testBurstKilled kills the broker after some of the updates have been accepted.
func testBurstKilled(t *testing.T, s subject) { burst(t, s, true) }

// burst makes 2,500 agents upload concurrently over 50 sessions. With the build tag nightly, both numbers are doubled.
// Mosquitto silently drops messages that exceed its queues. Nevertheless, every update must finally be accepted and
// stored on disk.
func burst(t *testing.T, s subject, kill bool) {
	const sessions, each = burstSessions, 50
	b := s.start(t, needs{})
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	some := make(chan struct{})
	sink := newSink(t, b.as(anyOne(sessions)), key, func(accepted int) {
		if accepted == sessions*each/4 {
			close(some)
		}
	})
	gateways := make([]*gateway, sessions)
	for i := range gateways {
		gateways[i] = newGateway(t, mqtttest.Dial(t, b.as(anyOne(i))), key, i*each, (i+1)*each)
		mqtttest.SettleAgain(t, gateways[i].session)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var receiving, sending sync.WaitGroup
	receiving.Go(func() { sink.run(ctx) })
	begun := time.Now()
	for _, g := range gateways {
		sending.Go(g.run)
	}
	done := make(chan struct{})
	go func() {
		sending.Wait()
		close(done)
	}()
	if kill {
		waitFor(t, some, "a quarter of the updates is not accepted")
		b.proc.Kill()
		b.proc.Start(t)
	}
	waitFor(t, done, "not all updates are accepted")
	took := time.Since(begun)
	cancel()
	receiving.Wait()
	if sink.failure != nil {
		t.Error(sink.failure)
	}
	offers := wantSpooled(t, sink, gateways)
	t.Logf("%d updates in %v, %d offers of them; receiver: %+v", sessions*each, took.Round(time.Millisecond), offers,
		sink.receiver.Stats())
}

// waitFor waits until done is closed, and fails the test after some minutes. The timeout leaves time for retries after
// the queues of the broker were full.
func waitFor(t *testing.T, done <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatal(otherwise)
	}
}

// wantSpooled reopens the spool (the receiver's folder of stored updates) and checks that it contains every accepted
// update. It returns the number of manifests that the gateways sent.
func wantSpooled(t *testing.T, k *sink, gateways []*gateway) (offers uint64) {
	t.Helper()
	spool := openSpool(t, k.dir)
	defer func() { _ = spool.Close() }()
	var payload []byte
	for _, g := range gateways {
		if g.failure != nil {
			t.Error(g.failure)
		}
		for id, u := range g.uploads {
			offers += u.Stats().SentManifests
			if !u.accepted {
				t.Errorf("the update of %s is not accepted", id)
				continue
			}
			var err error
			if payload, err = spool.ReadPayload(string(id), payload[:0]); err != nil {
				t.Errorf("the accepted update of %s: %v", id, err)
			} else if wire.BlobDigest(payload) != u.update.PayloadManifest.Hash {
				t.Errorf("the accepted update of %s is another one", id)
			}
		}
	}
	return offers
}
