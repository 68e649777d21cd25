package coordinator_test

import (
	"context"
	"crypto/ed25519"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// renewing is a federation with a device that requests keys and certificates.
type renewing struct {
	*federation
	conn     mqtt.Conn
	sequence uint64
	carried  atomic.Int32
}

func newRenewing(t *testing.T) *renewing {
	f := &renewing{federation: newFederation(t, 2, memory.Options{})}
	f.cfg.RenewCredentials = func(context.Context, wire.AgentID,
		*wire.CredentialRenewalRequest) (wire.CredentialRenewalAnswer, bool) {
		f.carried.Add(1)
		return wire.CredentialRenewalAnswer{RefusalReason: wire.RenewalStorageFailed}, true
	}
	f.coord.start()
	wait(time.Minute)
	f.conn = f.broker.Connect("device", nil)
	t.Cleanup(func() { _ = f.conn.Close() })
	f.conn.Subscribe(mqtt.AtMostOnce, f.topics.CoordinatorToAgent("a0"))
	return f
}

// request returns a renewal request for the key by, signed with that key. If before is not nil, the request replaces
// the key before, and the key vouches signs the replacement.
func (f *renewing) request(by, before, vouches ed25519.PrivateKey) []byte {
	m := wire.CredentialRenewalRequest{NewKey: wire.SigningPublicKeyOf(by), TLSKey: &wire.TLSPublicKey{4},
		TLSKeySignature: []byte{1}}
	if before != nil {
		m.SignWithListedKey(fedName, "a0", vouches)
		m.ListedKey = wire.SigningPublicKeyOf(before)
	}
	f.sequence++
	return wire.SignEnvelope(nil, wire.Header{Root: wire.FirstRootVersion, Type: wire.TypeRenewalRequest,
		Federation: fedName,
		Sender:     "a0", Epoch: 1, Sequence: f.sequence}, m.Body(), by)
}

// ask sends a renewal request and reports whether the coordinator executed it.
func (f *renewing) ask(p []byte) bool {
	before := f.carried.Load()
	if err := f.conn.Publish(mqtt.Message{Topic: f.topics.AgentToCoordinator("a0"), Payload: p}); err != nil {
		f.t.Fatal(err)
	}
	wait(time.Second)
	return f.carried.Load() > before
}

// answer returns the next answer that the device receives, after checking the coordinator's signature.
func (f *renewing) answer() wire.CredentialRenewalAnswer {
	for {
		m, is := (<-f.conn.Events()).(mqtt.MessageReceived)
		if !is {
			continue
		}
		e, err := wire.ParseEnvelope(m.Payload)
		if err != nil || e.Verify(f.coord.key.Public().(ed25519.PublicKey)) != nil {
			f.t.Fatalf("%x: %v", m.Payload, err)
		}
		if e.Type == wire.TypeRenewalAnswer {
			a, err := wire.DecodeCredentialRenewalAnswer(e.Body)
			if err != nil {
				f.t.Fatal(err)
			}
			return a
		}
	}
}

// TestRenewalsAreChecked checks that a renewal request needs a signature by the requested key and a signature by the
// listed key. A request is executed once, and a device's requests are executed at most once in ten seconds. The answer
// refers to the request.
func TestRenewalsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRenewing(t)
		own, next, stranger := hosts.TestKey("a0"), hosts.TestKey("next"), hosts.TestKey("stranger")
		forged := f.request(own, nil, nil)
		forged[len(forged)-1] ^= 1 // invalidates the signature
		old := f.request(next, own, own)
		good := wire.Envelope{}
		for _, tt := range []struct {
			what   string
			p      []byte
			reason devices.DropReason // expected reason for dropping; empty if the request is executed
		}{
			{"a key of nobody", f.request(stranger, nil, nil), devices.DropSignature},
			{"a stranger vouches", f.request(next, stranger, stranger), devices.DropSignature},
			{"a stranger vouches as the listed key", f.request(next, own, stranger), devices.DropSignature},
			{"a changed byte", forged, devices.DropMalformed},
			{"its own key", f.request(own, nil, nil), ""},
			{"too soon", f.request(next, own, own), devices.DropOverflow},
			{"replayed", old, devices.DropReplayed},
		} {
			if got := f.ask(tt.p); got != (tt.reason == "") {
				t.Errorf("%s: carried out is %v", tt.what, got)
			}
			dropped := events[coordinator.MessageDropped](f.federation)
			if tt.reason != "" && (len(dropped) == 0 || dropped[len(dropped)-1].Reason != tt.reason) {
				t.Errorf("%s: dropped %+v", tt.what, dropped)
			}
			if e, err := wire.ParseEnvelope(tt.p); tt.reason == "" && err == nil {
				good = e
			}
		}
		wait(10 * time.Second)
		if !f.ask(f.request(next, own, own)) || f.carried.Load() != 2 {
			t.Errorf("%d requests are carried out, ten seconds apart; want 2", f.carried.Load())
		}
		if a := f.answer(); a.RequestDigest != good.Digest() || a.RefusalReason != wire.RenewalStorageFailed {
			t.Errorf("answered: %+v", a)
		}
	})
}
