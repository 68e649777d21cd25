package devices

import (
	"crypto/ed25519"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// TestTurns checks that clones are reported, at most once an hour, if two boots of an agent alternate.
func TestTurns(t *testing.T) {
	hello := func(nonce uint64) (wire.MessageType, []byte) {
		return wire.TypeHello, (&wire.Hello{InstanceNonce: nonce}).Body()
	}
	presence := func(s wire.PresenceState, nonce uint64) (wire.MessageType, []byte) {
		return wire.TypePresence, (&wire.Presence{State: s, InstanceNonce: nonce, MaxProtocolVersion: 1}).Body()
	}
	synctest.Test(t, func(t *testing.T) {
		var told []any
		c := New(enrolled.NewListFromKeys(nil), Config{Now: time.Now,
			Observer: testkit.Observer(func(event observe.Event) { told = append(told, event) })})
		say := func(agent wire.AgentID, epoch wire.Epoch, sequence uint64, typ wire.MessageType, body []byte,
			clones int) {
			t.Helper()
			sealed := wire.SignEnvelope(nil, wire.Header{Root: wire.FirstRootVersion,
				Type: typ, Federation: "plant", Sender: agent, Epoch: epoch,
				Sequence: sequence}, body, make(ed25519.PrivateKey, ed25519.PrivateKeySize))
			e, err := wire.ParseEnvelope(sealed)
			if err != nil {
				t.Fatal(err)
			}
			told = nil
			c.detectClone(agent, &e)
			if len(told) != clones {
				t.Errorf("told %d times, want %d: %+v", len(told), clones, told)
			}
		}
		greet := func(epoch wire.Epoch, nonce, sequence uint64, clones int) {
			t.Helper()
			typ, body := hello(nonce)
			say("press", epoch, sequence, typ, body, clones)
		}
		greet(1, 11, 5, 0)
		greet(1, 11, 6, 0)
		greet(2, 22, 1, 0) // the agent has restarted
		greet(1, 11, 6, 0) // the broker repeats an old message of the previous boot
		greet(1, 11, 3, 0)
		typ, body := presence(wire.PresenceLost, 11) // the last will of the previous boot
		say("press", 1, 7, typ, body, 0)
		greet(3, 33, 1, 0)
		typ, body = presence(wire.PresenceOnline, 22)
		say("press", 2, 9, typ, body, 0) // a message of the device that seemed to have been restarted
		greet(3, 33, 2, 1)
		greet(2, 22, 10, 0) // no report, because a clone is reported at most once an hour
		<-time.After(time.Hour)
		greet(3, 33, 3, 1)
		typ, body = hello(22)
		say("other", 2, 1, typ, body, 0)
		greet(3, 44, 1, 0) // another process with the same epoch but a different nonce
		<-time.After(time.Hour)
		greet(2, 22, 11, 0)
		greet(3, 44, 2, 0)
		greet(2, 22, 12, 1)
		greet(1, 11, 8, 0) // the broker delivers an old message again
		greet(2, 22, 13, 0)
		<-time.After(time.Hour)
		greet(1, 11, 8, 0)
		greet(2, 22, 14, 0)
	})
}
