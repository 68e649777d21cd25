package d2d

import (
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// TestNeighborSpeaksForNobodyElse checks that sender proofs prevent impersonation. A neighbour knows the key with which
// another agent encrypts messages, and could send messages in that agent's name to a third agent. With proofs, the
// third agent must reject such messages. It must also reject a message that the other agent sent to the neighbour and
// the neighbour forwards.
func TestNeighborSpeaksForNobodyElse(t *testing.T) {
	now := time.Unix(0, 0)
	for _, proofs := range []bool{true, false} {
		l := newLinks[float64](t, 1, 3, 2, map[[2]int]float64{{0, 1}: 0.3, {0, 2}: 0.3, {1, 2}: 0.3},
			fate{steps: 5, unproved: !proofs})
		for _, from := range l.nodes {
			from.ex.Step(now, Start{})
		}
		for range 2 { // Repeat the exchange, so that all agents receive all keys.
			for _, from := range l.nodes {
				from.ex.scheduleGreeting(now.Add(-time.Hour))
				from.ex.greetingInterval = 0
				for _, m := range published(from.ex.Step(now.Add(time.Hour), nil)) {
					for _, to := range l.nodes {
						to.ex.Step(now, MessageReceived{slices.Clone(m)})
					}
				}
			}
		}
		a, liar, third := l.nodes[0].ex, l.nodes[1].ex, l.nodes[2].ex
		as := wire.PeerMessageHeader{Type: wire.PeerSnapshot, Run: 1, Round: 2, Sender: a.cfg.Self, SenderBootEpoch: 1}
		head := wire.SnapshotPartHeader{Step: 1, PartCount: 1, Receivers: []wire.SnapshotReceiver{
			{PeerInstance: wire.PeerInstance{ID: third.cfg.Self, BootEpoch: 1}, SnapshotSeq: 1}}}
		forged := wire.AppendSnapshotPartHeader(nil, as, &head)
		forged = liar.peerByID(a.cfg.Self).theirSealer.aead.Seal(forged, sealNonce(wire.PeerSnapshot, 0, 1),
			make([]byte, 16),
			forged)
		forged = liar.appendSenderProofs(forged,
			edgeReceiver{NeighborID: third.cfg.Self}) // The attacker shares only this key with the third agent.
		before := third.Stats().IgnoredMessagesByReason[IgnoreUnsealFailed]
		third.Step(now, MessageReceived{forged})
		taken := third.mixer.edgeToNeighbor(a.cfg.Self).theirNextParameters != nil
		if taken == proofs || (third.Stats().IgnoredMessagesByReason[IgnoreUnsealFailed] > before) != proofs {
			t.Errorf("with proofs %t: taken %t, ignored %+v", proofs, taken, third.Stats().IgnoredMessagesByReason)
		}
		honest := published(a.Step(now, LocalStepTaken{}))
		third.Step(now, MessageReceived{slices.Clone(honest[len(honest)-1])})
		if proofs && third.mixer.edgeToNeighbor(a.cfg.Self).theirNextParameters == nil {
			t.Errorf("the true one is not taken: %+v", third.Stats().IgnoredMessagesByReason)
		}
	}
}
