package coordinator_test

import (
	"context"
	"crypto/ed25519"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// TestRenewalsAreChecked: a request counts that its key has signed, and for which the key in the list vouches; once,
// and once in ten seconds. The answer names it.
func TestRenewalsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		carried := 0
		f.cfg.Renew = func(context.Context, wire.AgentID, *wire.Renew) (wire.Renewed, bool) {
			carried++
			return wire.Renewed{Refused: wire.RenewFailed}, true
		}
		f.coord.start()
		wait(time.Minute)
		device := f.broker.Connect("device", nil)
		defer device.Close()
		device.Subscribe(mqtt.AtMostOnce, f.topics.Device("a0"))
		own, next, stranger := hosts.KeyOf("a0"), hosts.KeyOf("next"), hosts.KeyOf("stranger")
		sequence := uint64(0)
		request := func(by, before, vouches ed25519.PrivateKey) []byte {
			m := wire.Renew{Key: wire.SignKeyOf(by), TLS: &wire.TLSKey{4}, ByTLS: []byte{1}}
			if before != nil {
				m.SignBefore(fedName, "a0", vouches)
				m.Before = wire.SignKeyOf(before)
			}
			sequence++
			return wire.Seal(nil, wire.Header{Root: wire.FirstRoot, Type: wire.TypeRenew, Federation: fedName,
				Sender: "a0", Epoch: 1, Sequence: sequence}, m.Body(), by)
		}
		forged := request(own, nil, nil)
		forged[len(forged)-1] ^= 1 // the hash does not fit
		old := request(next, own, own)
		var answered wire.Digest
		for _, tt := range []struct {
			what   string
			p      []byte
			good   bool
			reason coordinator.DropReason
		}{
			{"a key of nobody", request(stranger, nil, nil), false, coordinator.DropSignature},
			{"a stranger vouches", request(next, stranger, stranger), false, coordinator.DropSignature},
			{"a stranger vouches as the listed key", request(next, own, stranger), false, coordinator.DropSignature},
			{"a changed byte", forged, false, coordinator.DropMalformed},
			{"its own key", request(own, nil, nil), true, ""},
			{"too soon", request(next, own, own), false, coordinator.DropOverflow},
			{"replayed", old, false, coordinator.DropReplayed},
		} {
			before := carried
			if err := device.Publish(mqtt.Message{Topic: f.topics.Status("a0"), Payload: tt.p}); err != nil {
				t.Fatal(err)
			}
			wait(time.Second)
			if got := carried > before; got != tt.good {
				t.Errorf("%s: carried out is %v", tt.what, got)
			}
			dropped := facts[coordinator.MessageDropped](f)
			if !tt.good && (len(dropped) == 0 || dropped[len(dropped)-1].Reason != tt.reason) {
				t.Errorf("%s: dropped %+v", tt.what, dropped)
			}
			if e, err := wire.Open(tt.p); tt.good && err == nil {
				answered = e.Digest()
			}
		}
		wait(10 * time.Second)
		p := request(next, own, own)
		if err := device.Publish(mqtt.Message{Topic: f.topics.Status("a0"), Payload: p}); err != nil {
			t.Fatal(err)
		}
		wait(time.Second)
		if carried != 2 {
			t.Errorf("%d requests are carried out, ten seconds apart; want 2", carried)
		}
		for n := 0; n < 1; {
			m, is := (<-device.Events()).(mqtt.Received)
			if !is {
				continue
			}
			e, err := wire.Open(m.Payload)
			if err != nil || e.Verify(f.coord.key.Public().(ed25519.PublicKey)) != nil {
				t.Fatal(err)
			}
			if e.Type != wire.TypeRenewed {
				continue
			}
			n++
			if a, err := wire.DecodeRenewed(e.Body); err != nil || a.Answers != answered ||
				a.Refused != wire.RenewFailed {
				t.Errorf("answered: %+v, %v", a, err)
			}
		}
	})
}
