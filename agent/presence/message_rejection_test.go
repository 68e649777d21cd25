package presence

import (
	"crypto/ed25519"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// TestRejections checks that a rejection is reported once, and only if it names an unanswered message or the agent was
// removed from the list. A rejection as a clone must remain in force after an answer.
func TestRejections(t *testing.T) {
	var reported []wire.MessageRejectionReason
	keyRejections := 0
	core := &part.AgentCore{Federation: "plant", ID: "press", Publish: func(mqtt.Message) {},
		Signer: &host.Signer{Federation: "plant", Sender: "press", Epoch: 1, SignatureScheme: wire.Ed25519{},
			Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))},
		Observer: testkit.Observer(func(e observe.Event) { reported = append(reported, e.(MessagesRejected).Reason) }),
		Rand:     rand.New(rand.NewPCG(1, 2))}
	p := New(core, new(Config), AgentCallbacks{OnKeyRejected: func() { keyRejections++ }})
	send := func() wire.Digest {
		t.Helper()
		m := p.presenceMessage(wire.PresenceOnline)
		p.PublishAwaitingAnswer(m)
		e, err := wire.ParseEnvelope(m.Payload)
		if err != nil {
			t.Fatal(err)
		}
		return e.Digest()
	}
	reject := func(d wire.Digest, reason wire.MessageRejectionReason, dropped bool) {
		t.Helper()
		m := wire.MessageRejection{MessageDigest: d, Reason: reason}
		if err := p.ReceiveDirectMessage(&wire.Envelope{Body: m.Body()}); (err != nil) != dropped {
			t.Errorf("%s: dropped with %v, want %v", reason, err, dropped)
		}
	}
	first := send()
	reject(first, wire.RejectedOtherKey, false)
	reject(first, wire.RejectedOldEpoch, true) // A second rejection of the same message is ignored.
	reject(wire.Digest{1}, wire.RejectedOtherKey, true)
	reject(wire.Digest{}, wire.RejectedOtherKey, true)
	second := send()
	p.RecordAcceptanceByCoordinator()
	reject(second, wire.RejectedOtherKey, true) // The message was already answered.
	reject(second, wire.RejectedUnlistedAgent, false)
	reject(send(), wire.RejectedClone, false)
	p.RecordAcceptanceByCoordinator()
	want := []wire.MessageRejectionReason{wire.RejectedOtherKey, 0, wire.RejectedUnlistedAgent, wire.RejectedClone}
	if !slices.Equal(reported, want) || keyRejections != 1 {
		t.Errorf("reported %v, and %d rejections of the key, want %v and 1", reported, keyRejections, want)
	}
}
