package agent_test

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// inCell configures the agent of a test scene to search for neighbours, and returns the scene.
func inCell(s *scene) *scene {
	s.cfg.Mesh = &mesh.Config{FillRandom: func(p []byte) { clear(p) }, Cell: "hall", MaxNeighbors: 2}
	return s
}

// beacon returns the agent's last beacon (its announcement to neighbours) and the beacon's proof.
func (s *scene) beacon() (wire.Beacon, *wire.BeaconProof) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.said) - 1; i >= 0; i-- {
		if m := s.said[i]; m.Topic == s.topics.Beacon("hall", "press") && len(m.Payload) > 0 {
			_, b, proof, err := wire.DecodeBeacon(m.Payload)
			if err != nil {
				s.t.Fatal(err)
			}
			return b, proof
		}
	}
	s.t.Fatal("there is no beacon")
	panic("unreachable")
}

// wordBy returns an attestation of an agent's key, which is signed with the key by.
func wordBy(by ed25519.PrivateKey, of wire.AgentID) wire.AgentKeyAttestation {
	w := wire.AgentKeyAttestation{AgentKey: wire.SigningPublicKeyOf(hosts.TestKey(of))}
	w.CoordinatorSignature = wire.Signature(ed25519.Sign(by, wire.AgentKeyAttestationText("plant", of, w.AgentKey)))
	return w
}

// give sends the agent an invitation that contains the signature by, which attests the agent's key.
func (s *scene) give(by wire.Signature) {
	s.direct(wire.TypeInvitation, 1, (&wire.Invitation{Agent: "press", RemainingMillis: 1000, StepSizeWeight: 1,
		KeyAttestation: by}).Body())
}

// hears delivers a beacon of another agent, which is signed unless key is nil. It returns the reason why the agent
// dropped the beacon.
func (s *scene) hears(from wire.AgentID, stamp uint64, word wire.AgentKeyAttestation, key ed25519.PrivateKey) string {
	s.t.Helper()
	before := len(eventsOf[agent.MessageDropped](s))
	h := wire.PeerMessageHeader{Type: wire.PeerBeacon, Sender: from, SenderBootEpoch: 1}
	if key != nil {
		h.Type = wire.PeerSignedBeacon
	}
	m := wire.AppendBeacon(nil, h, &wire.Beacon{NextBeaconMillis: 10000, SentAtMicros: stamp, MaxNeighbors: 2})
	if key != nil {
		m = wire.SignBeacon(wire.Ed25519{}, m, wire.BeaconCell{Federation: "plant", CellName: "hall"}, word, key)
	}
	s.send(s.topics.Beacon("hall", from), m)
	if dropped := eventsOf[agent.MessageDropped](s)[before:]; len(dropped) > 0 {
		if d := dropped[0]; d.Reason != part.DropSignature || d.Kind != mqtt.KindBeacon {
			s.t.Errorf("dropped: %+v", d)
		}
		return dropped[0].Err.Error()
	}
	return ""
}

// TestWord checks that an agent with an attestation of its key signs its beacons, even after a restart, and drops
// beacons that are not signed by their sender.
func TestWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inCell(newScene(t))
		cell, press := wire.BeaconCell{Federation: "plant", CellName: "hall"}, hosts.TestKey("press")
		s.start()
		s.announce(1, s.idle())
		s.give(wordBy(hosts.TestKey("stranger"), "press").CoordinatorSignature)
		if _, proof := s.beacon(); proof != nil {
			t.Error("a stranger's word is taken")
		}
		if why := s.hears("other", 1, wire.AgentKeyAttestation{}, nil); why != "" {
			t.Errorf("without a word: %s", why)
		}
		s.give(wordBy(s.key, "press").CoordinatorSignature)
		b, proof := s.beacon()
		if proof == nil || !proof.Verify(wire.Ed25519{}, cell) || proof.Attestation != wordBy(s.key, "press") {
			t.Fatalf("the beacon after the word: %+v, proof %+v", b, proof)
		}
		good := wordBy(s.key, "other")
		for i, c := range []struct {
			name string
			word wire.AgentKeyAttestation
			key  ed25519.PrivateKey
			why  string
		}{
			{"unsigned", wire.AgentKeyAttestation{}, nil, "unsigned"},
			{"the coordinator's word about another", wordBy(s.key, "press"), press, "not attested by the coordinator"},
			{"another's word", wordBy(press, "other"), hosts.TestKey("other"), "not attested by the coordinator"},
			{"another's signature", good, press, "invalid signature"},
			{"its own", good, hosts.TestKey("other"), ""},
		} {
			why := s.hears("other", uint64(10+i), c.word, c.key)
			if !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
				t.Errorf("%s: %q, want %q", c.name, why, c.why)
			}
		}
		s.stop()
		s.start()
		if _, proof := s.beacon(); proof == nil || !proof.Verify(wire.Ed25519{}, cell) {
			t.Error("the word is forgotten")
		}
		s.stop()
		s.cfg.Identity.Key = hosts.TestKey("another key")
		s.start()
		if _, proof := s.beacon(); proof != nil {
			t.Error("the word about the key before is used")
		}
	})
}

// TestWordOfAnotherRoot checks that attestations become invalid when a new root document (list of trusted keys)
// replaces the coordinator's key or revokes the agent.
func TestWordOfAnotherRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inCell(rooted(t))
		s.start()
		s.announce(1, s.idle())
		s.give(wordBy(s.key, "press").CoordinatorSignature)
		if _, proof := s.beacon(); proof == nil {
			t.Fatal("the word is not taken")
		}
		second := hosts.TestKey("second")
		d := rootAfter(s.cfg.Identity.Root, hosts.TestKey("root"), second)
		d.RevokedAgents = []wire.AgentID{"thief"}
		d.Sign(hosts.TestKey("root"), hosts.TestKey("root"))
		s.send(s.topics.RootDocument(2), d.Bytes())
		wait(time.Minute)
		if _, proof := s.beacon(); proof != nil || len(s.taken()) != 1 {
			t.Error("a word by the key before is used")
		}
		if why := s.hears("other", 1, wordBy(s.key, "other"), hosts.TestKey("other")); why == "" {
			t.Error("a word by the key before counts")
		}
		if why := s.hears("other", 2, wordBy(second, "other"), hosts.TestKey("other")); why != "" {
			t.Error(why)
		}
		why := s.hears("thief", 3, wordBy(second, "thief"), hosts.TestKey("thief"))
		if !strings.Contains(why, "revoked by the root document") {
			t.Errorf("a revoked agent: %q", why)
		}
	})
}
