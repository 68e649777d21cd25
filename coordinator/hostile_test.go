package coordinator_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// stranger is a client that publishes arbitrary messages and receives all topics.
type stranger struct {
	f        *federation
	conn     mqtt.Conn
	heard    []mqtt.Message
	sequence uint64
	open     wire.Envelope // announcement of the open round
	ann      wire.Announcement
}

func newStranger(f *federation) *stranger {
	s := &stranger{f: f, conn: f.broker.Connect("stranger", nil)}
	s.conn.Subscribe(mqtt.AtMostOnce, "#")
	f.t.Cleanup(func() { _ = s.conn.Close() })
	return s
}

// listen reads all messages that have arrived.
func (s *stranger) listen() {
	for {
		synctest.Wait()
		select {
		case e := <-s.conn.Events():
			m, ok := e.(mqtt.MessageReceived)
			if !ok {
				continue
			}
			s.heard = append(s.heard, m.Message)
			if e, err := wire.ParseEnvelope(m.Payload); err == nil && e.Type == wire.TypeAnnouncement {
				s.open = e
				if s.ann, err = wire.DecodeAnnouncement(e.Body); err != nil {
					s.f.t.Error(err)
				}
			}
		default:
			return
		}
	}
}

// last returns the newest message of a type on a topic.
func (s *stranger) last(topic string, typ wire.MessageType) (found []byte) {
	for _, m := range s.heard {
		if m.Topic != topic {
			continue
		}
		if e, err := s.f.reveal(m); err == nil && e.Type == typ {
			found = m.Payload
		}
	}
	return found
}

func (s *stranger) say(topic string, payload []byte) {
	if err := s.conn.Publish(mqtt.Message{Topic: topic, Payload: bytes.Clone(payload),
		QoS: mqtt.AtLeastOnce}); err != nil {
		s.f.t.Error(err)
	}
	synctest.Wait()
}

// as returns a message header in the name of an agent.
func (s *stranger) as(id wire.AgentID, t wire.MessageType) wire.Header {
	s.sequence++
	return wire.Header{Root: wire.FirstRootVersion,
		Type: t, Federation: fedName, Sender: id, Epoch: 1, Run: s.open.Run, Round: s.open.Round,
		Sequence: s.sequence}
}

// sealFor returns a signed message of the agent h.Sender. The body is encrypted with the announced key if the type
// requires it.
func sealFor(announced wire.X25519PublicKey, h wire.Header, body []byte) []byte {
	return signedBy(hosts.TestKey(h.Sender), announced, h, body)
}

// signedBy is like sealFor, but signs with the given key.
func signedBy(key ed25519.PrivateKey, announced wire.X25519PublicKey, h wire.Header, body []byte) []byte {
	if pair, err := wire.NewAgentSealKeys(hosts.TestKey(h.Sender), announced); err == nil && h.Type.MustBeSealed() {
		t := h.Type
		h.Type = wire.TypeSealed
		body = pair.FromAgentKey.SealMessage(announced, h, t, body)
	}
	return wire.SignEnvelope(nil, h, body, key)
}

func (s *stranger) hello(id wire.AgentID) []byte {
	h := wire.Hello{FollowedAnnouncement: s.open.Digest(), Samples: 10}
	return sealFor(s.ann.SealPublicKey, s.as(id, wire.TypeHello), h.Body())
}

// update returns an agent's update of four elements after change has modified it.
func (s *stranger) update(id wire.AgentID, change func(h *wire.Header, u *wire.Update), v ...float32) []byte {
	payload := wire.AppendVector(nil, v)
	m, err := wire.NewManifest(payload, s.ann.UpdateSchema)
	if err != nil {
		s.f.t.Fatal(err)
	}
	h := s.as(id, wire.TypeUpdate)
	u := wire.Update{Kind: wire.KindTraining, BaseModelDigest: s.ann.BaseModel.Hash, Samples: 10, PayloadManifest: m,
		InlinePayload: payload}
	change(&h, &u)
	return sealFor(s.ann.SealPublicKey, h, u.Body())
}

func (s *stranger) offer(id wire.AgentID, sealed []byte) {
	s.say(s.f.topics.UpdatePart(id, "0123456789abcdef", transfer.ManifestPartName), sealed)
}

// verdicts returns the reasons why messages were dropped, in order.
func (f *federation) verdicts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, h := range f.log {
		switch x := h.event.(type) {
		case coordinator.MessageDropped:
			all = append(all, "dropped: "+string(x.Reason))
		case round.UpdateRefused:
			all = append(all, "refused: "+x.Reason.String())
		}
	}
	return all
}

// TestHostileMessages checks that each hostile message has exactly one outcome (for example, dropped with a reason),
// and that the round still completes.
func TestHostileMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		evil := []wire.AgentID{"nan", "hash", "norm", "base", "schema", "short", "kind", "round", "late", "run", "twin",
			"soft"}
		for _, id := range append(evil, "idle") {
			f.enrol(id)
		}
		f.cfg.Standardize, f.cfg.MaxUpdateNorm, f.cfg.Round.MaxAggregations = false, 1e6, 1
		f.cfg.Task.Training.StepSize = 1e-5
		r := &f.cfg.Round
		r.Participants, r.Gather.TargetAgents, r.Gather.MinAgents, r.RoundTimeout = len(evil)+3, len(evil)+3, 3,
			5*time.Minute
		f.agents[0].cfg.Training.DeclaredStepTime = time.Minute // keeps the round open
		s := newStranger(f)
		f.start()
		s.listen()
		for _, id := range evil {
			s.say(f.topics.AgentToCoordinator(id), s.hello(id))
		}
		f.until(time.Minute, "open", func() bool { return len(events[round.RoundOpened](f)) == 1 })
		s.listen()
		if s.ann.Phase != wire.PhaseOpen {
			t.Fatalf("the phase is %v", s.ann.Phase)
		}
		for _, c := range hostileCases(s) {
			before := len(f.verdicts())
			c.act()
			got := f.verdicts()[before:]
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || got[0] != c.want) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		}
		for _, joined := range events[round.AgentJoined](f) {
			if joined.Agent == "soft" {
				t.Errorf("%+v: it joined another announcement", joined)
			}
		}
		s.listen()
		if s.last(f.topics.CoordinatorToAgent("twin"), wire.TypeUpdateAccepted) == nil {
			t.Error("the repeated update was not answered")
		}
		f.finished(time.Hour)
		if c := events[round.RoundClosed](f); len(c) != 1 || c[0].AcceptedUpdates != 4 { // a0, a1, a2 and twin
			t.Errorf("closed: %+v", c)
		}
	})
}

// TestOtherVersions checks that an agent with another protocol version is ignored, and that the coordinator logs what
// the operator should do.
func TestOtherVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 1, memory.Options{})
		s := newStranger(f)
		f.enrol("old")
		f.coord.start()
		s.listen()
		for version, update := range map[byte]string{1: "agent", 3: "coordinator"} {
			p := s.hello("old")
			p[4] = version
			s.say(f.topics.AgentToCoordinator("old"), p)
			all := events[coordinator.MessageDropped](f)
			want := fmt.Sprintf("unsupported protocol version %d: this program supports version 2: update the %s",
				version, update)
			if len(all) == 0 {
				t.Fatalf("version %d: nothing was dropped", version)
			}
			if m := all[len(all)-1]; m.Agent != "old" || m.Reason != devices.DropVersion || m.Err.Error() != want {
				t.Errorf("%s, %s, %v, want %s", m.Agent, m.Reason, m.Err, want)
			}
		}
		if counted := events[round.AgentEligible](f); len(counted) > 0 {
			t.Errorf("counted %+v", counted)
		}
	})
}

type hostileCase struct {
	name string
	act  func()
	want string
}

func hostileCases(s *stranger) []hostileCase {
	return slices.Concat(brokenEnvelopes(s), strayMessages(s), badUpdates(s))
}

// strayMessages returns validly signed messages of each type, once with an invalid body and once on a wrong topic.
func strayMessages(s *stranger) (cases []hostileCase) {
	status, presence := s.f.topics.AgentToCoordinator("soft"), s.f.topics.Presence("soft")
	update := s.f.topics.UpdatePart("soft", "0123456789abcdef", transfer.ManifestPartName)
	for t, topics := range map[wire.MessageType][2]string{
		wire.TypePresence: {presence, status}, wire.TypeHello: {status, update}, wire.TypeInvitationAccepted: {status,
			presence},
		wire.TypeInvitationDeclined: {status, update}, wire.TypeMetricsReport: {status, presence},
		wire.TypeUpdate: {update, status},
	} {
		say := func(topic string) func() {
			return func() { s.say(topic, sealFor(s.ann.SealPublicKey, s.as("soft", t), []byte("?"))) }
		}
		cases = append(cases, hostileCase{fmt.Sprintf("a %s without form", t), say(topics[0]), "dropped: malformed"},
			hostileCase{fmt.Sprintf("a %s elsewhere", t), say(topics[1]), "dropped: foreign"})
	}
	return cases
}

// brokenEnvelopes returns messages with invalid envelopes, which must not reach the round machine.
func brokenEnvelopes(s *stranger) []hostileCase {
	f := s.f
	status := func(p []byte) func() { return func() { s.say(f.topics.AgentToCoordinator("a1"), p) } }
	hello := s.last(f.topics.AgentToCoordinator("a1"), wire.TypeHello)
	edited := func(at int, b byte) []byte {
		p := bytes.Clone(hello)
		p[at] = b
		return p
	}
	sealed := func(change func(h *wire.Header), body []byte, key ed25519.PrivateKey) []byte {
		h := s.as("a1", wire.TypeHello)
		h.Epoch, h.Sequence = 7, 1e6+h.Sequence // newer than all messages of a1, even after a restart
		change(&h)
		return signedBy(key, s.ann.SealPublicKey, h, body)
	}
	unchanged := func(*wire.Header) {}
	body := (&wire.Hello{Samples: 1}).Body()
	old := func(h *wire.Header) { h.Epoch = 0 }
	return []hostileCase{
		{"no envelope", status([]byte("hello")), "dropped: malformed"},
		{"cut short", status(hello[:len(hello)-1]), "dropped: malformed"},
		{"another version", status(edited(4, 1)), "dropped: version"},
		{"a flipped bit in the header", status(edited(112, hello[112]^1)), "dropped: bad_signature"},
		{"a flipped bit in the body", status(edited(len(hello)-1, 1)), "dropped: malformed"},
		{"another's key", status(sealed(unchanged, body, hosts.TestKey("a2"))), "dropped: bad_signature"},
		{"a replay", status(hello), "dropped: replayed"},
		{"an epoch that went back", status(sealed(old, body, hosts.TestKey("a1"))), "dropped: replayed"},
		{"another's topic", func() { s.say(f.topics.AgentToCoordinator("a2"), hello) }, "dropped: foreign"},
		{"another federation", status(sealed(func(h *wire.Header) { h.Federation = "mine" }, body,
			hosts.TestKey("a1"))),
			"dropped: foreign"},
		{"an unknown agent", func() { s.say(f.topics.AgentToCoordinator("nobody"), s.hello("nobody")) },
			"dropped: unknown_agent"},
		{"a hello as a presence", func() { s.say(f.topics.Presence("soft"), s.hello("soft")) }, "dropped: foreign"},
		{"an announcement by an agent", func() {
			s.say(f.topics.AgentToCoordinator("soft"),
				wire.SignEnvelope(nil, s.as("soft", wire.TypeAnnouncement), s.ann.Body(), hosts.TestKey("soft")))
		}, "dropped: foreign"},
		{"a signed body without form", func() {
			s.say(f.topics.AgentToCoordinator("soft"),
				sealFor(s.ann.SealPublicKey, s.as("soft", wire.TypeHello), []byte("?")))
		}, "dropped: malformed"},
		{"a topic of no agent", func() { s.say("fl/v1/"+fedName+"/s/"+fedName+"-coordinator", hello) },
			"dropped: foreign"},
		{"a topic of another federation", func() { s.say("fl/v1/"+fedName+"/p/mine-a1", hello) }, "dropped: foreign"},
		{"an update of no part", func() { s.say(f.topics.UpdatePart("a1", "x", "0")+"x", hello) }, "dropped: foreign"},
		{"a presence that is retained, once more",
			func() { s.say(f.topics.Presence("a1"), s.last(f.topics.Presence("a1"), wire.TypePresence)) }, ""},
		{"a deleted presence", func() { s.say(f.topics.Presence("a1"), nil) }, ""},
		{"a chunk of nothing", func() { s.say(f.topics.UpdatePart("a1", "x", "0"), hello) }, ""},
		{"a hello of one that obeys a later place", func() {
			h := s.as("soft", wire.TypeHello)
			h.Round++
			s.say(f.topics.AgentToCoordinator("soft"), sealFor(s.ann.SealPublicKey, h, body))
		}, ""},
		{"a joined for another announcement", func() {
			s.say(f.topics.AgentToCoordinator("soft"),
				wire.SignEnvelope(nil, s.as("soft", wire.TypeInvitationAccepted), (&wire.InvitationAccepted{}).Body(),
					hosts.TestKey("soft")))
		}, ""},
	}
}

// badUpdates returns well-formed, signed updates with invalid content or metadata. An update with invalid content
// excludes its agent from the round.
func badUpdates(s *stranger) []hostileCase {
	nan := float32(math.NaN())
	same := func(*wire.Header, *wire.Update) {}
	offer := func(id wire.AgentID, change func(*wire.Header, *wire.Update), v ...float32) func() {
		return func() { s.offer(id, s.update(id, change, v...)) }
	}
	var repeat wire.Digest
	return []hostileCase{
		{"not a number", offer("nan", same, 1, nan, 0, 0), "refused: not_finite"},
		{"out once, out for good", offer("nan", same, 1, 2, 3, 4), "refused: not_selected"},
		{"another payload than its hash says",
			offer("hash", func(_ *wire.Header, u *wire.Update) { u.InlinePayload[0]++ }, 1, 2, 3, 4),
			"refused: bad_hash"},
		{"a vector too long", offer("norm", same, 1e6, 1, 1, 1), "refused: norm"},
		{"another base", offer("base", func(_ *wire.Header, u *wire.Update) { u.BaseModelDigest[0]++ }, 1, 2, 3, 4),
			"refused: wrong_base"},
		{"another schema", offer("schema", func(_ *wire.Header,
			u *wire.Update) {
			u.PayloadManifest.VectorSchema[0]++
		}, 1, 2,
			3, 4),
			"refused: wrong_schema"},
		{"too few elements", offer("short", same, 1, 2, 3), "refused: wrong_schema"},
		{"another kind", offer("kind", func(_ *wire.Header, u *wire.Update) { u.Kind = wire.KindStatistics }, 1, 2, 3,
			4), "refused: wrong_round"},
		{"a round to come", offer("round", func(h *wire.Header, _ *wire.Update) { h.Round++ }, 1, 2, 3, 4),
			"dropped: later_place"},
		{"a round that is over", offer("late", func(h *wire.Header, _ *wire.Update) { h.Round-- }, 1, 2, 3, 4),
			"refused: late"},
		{"another run", offer("run", func(h *wire.Header, _ *wire.Update) { h.Run-- }, 1, 2, 3, 4),
			"refused: wrong_round"},
		{"an agent that was not selected", offer("idle", same, 1, 2, 3, 4), "refused: not_selected"},
		{"a manifest with a risk that is none",
			offer("soft", func(_ *wire.Header, u *wire.Update) { u.RiskAfter = math.Inf(1) }, 1, 2, 3, 4),
			"dropped: malformed"},
		{"a decline of another announcement", func() {
			s.say(s.f.topics.AgentToCoordinator("twin"), wire.SignEnvelope(nil, s.as("twin",
				wire.TypeInvitationDeclined),
				(&wire.InvitationDeclined{Announcement: wire.Digest{1}, Reason: wire.DeclineBadData}).Body(),
				hosts.TestKey("twin")))
		}, ""},
		{"a good one", offer("twin", func(_ *wire.Header, u *wire.Update) { repeat = u.PayloadManifest.Hash }, 1, 2, 3,
			4), ""},
		{"and another", offer("twin", same, 4, 3, 2, 1), "refused: conflict"},
		{"the good one again", offer("twin", func(_ *wire.Header, u *wire.Update) {
			if u.PayloadManifest.Hash != repeat {
				s.f.t.Error("it is not the same")
			}
		}, 1, 2, 3, 4), ""},
	}
}
