package agent_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// fates returns the reasons for which messages had no effect.
func (s *scene) fates() (all []string) {
	for _, f := range eventsOf[any](s) {
		switch f := f.(type) {
		case agent.MessageDropped:
			all = append(all, "dropped: "+string(f.Reason))
		case agentround.AnnouncementIgnored:
			all = append(all, "ignored: "+string(f.Reason))
		}
	}
	return all
}

// TestHostileMessages checks that each invalid message has exactly one expected outcome, and that the round
// nevertheless continues to its end.
func TestHostileMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		ann := s.training(taskOf("a task"), 0, 0)
		digest := s.announce(4, ann)
		s.invite(4, digest)
		wait(10 * time.Second)
		_, offered := s.update()
		before := len(s.heard(wire.TypeUpdate))
		for _, c := range hostileCases(s, ann, digest, offered.PayloadManifest.Hash) {
			n := len(s.fates())
			s.send(c.topic, c.payload)
			got := s.fates()[n:]
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || got[0] != c.want) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		}
		wait(time.Minute)
		if n := len(s.heard(wire.TypeUpdate)); n <= before {
			t.Errorf("the update is not repeated any more: %d times", n)
		}
		s.direct(wire.TypeUpdateAccepted, 4, (&wire.UpdateAccepted{Update: offered.PayloadManifest.Hash}).Body())
		if ends := eventsOf[agentround.WorkEnded](s); len(ends) != 1 || ends[0].Result != agentround.WorkAccepted {
			t.Errorf("ended: %+v", ends)
		}
		if d := s.declined(); d != "" {
			t.Errorf("declined: %s", d)
		}
	})
}

// TestOtherVersions checks that the agent ignores an announcement of another protocol version, and reports what the
// operator should do.
func TestOtherVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		ann := s.training(taskOf("a task"), 0, 0)
		for version, update := range map[byte]string{1: "coordinator", 3: "agent"} {
			p := s.sign(s.header(wire.TypeAnnouncement, 4), ann.Body())
			p[4] = version
			s.send(s.topics.Announcement(), p)
			all := eventsOf[agent.MessageDropped](s)
			want := fmt.Sprintf("unsupported protocol version %d: this program supports version 2: update the %s",
				version, update)
			if f := all[len(all)-1]; f.Reason != part.DropVersion || f.Err.Error() != want {
				t.Errorf("%s, %v, want %s", f.Reason, f.Err, want)
			}
		}
		if obeyed := eventsOf[agentround.AnnouncementObeyed](s); len(obeyed) > 0 {
			t.Errorf("obeyed %+v", obeyed)
		}
	})
}

// hostile is an invalid message and its expected outcome. The outcome "" means that the message has no outcome.
type hostile struct {
	name, topic string
	payload     []byte
	want        string
}

// hostileCases returns invalid messages to an agent that has received the announcement ann with the given digest and
// has sent the given update.
func hostileCases(s *scene, ann wire.Announcement, digest, update wire.Digest) []hostile {
	device, roundTopic := s.topics.CoordinatorToAgent("press"), s.topics.Announcement()
	standing := (&wire.HelloAnswer{Announcement: digest, SelectionStatus: wire.StatusSelectionPending}).Body()
	good := s.message(s.header(wire.TypeHelloAnswer, 4), standing)
	edited := func(at int, b byte) []byte {
		p := bytes.Clone(good)
		p[at] = b
		return p
	}
	with := func(change func(h *wire.Header)) []byte {
		h := s.header(wire.TypeHelloAnswer, 4)
		change(&h)
		return s.message(h, standing)
	}
	announcement := func(r wire.RoundID, change func(a *wire.Announcement)) []byte {
		a := ann
		change(&a)
		return s.message(s.header(wire.TypeAnnouncement, r), a.Body())
	}
	h, sealed := s.keys.sealed(s.header(wire.TypeHelloAnswer, 4), standing)
	forged := wire.SignEnvelope(nil, h, sealed, hosts.TestKey("mallory"))
	same := func(*wire.Announcement) {}
	accepted := (&wire.UpdateAccepted{Update: update}).Body()
	refused := (&wire.UpdateRefused{Update: update, Reason: wire.RefuseLate}).Body()
	return []hostile{
		{"no envelope", device, []byte("hello"), "dropped: malformed"},
		{"no announcement", roundTopic, []byte("hello"), "dropped: malformed"},
		{"cut short", device, good[:len(good)-1], "dropped: malformed"},
		{"another version", device, edited(4, 9), "dropped: version"},
		{"a flipped bit", device, edited(112, good[112]^1), "dropped: bad_signature"},
		{"another's key", device, forged, "dropped: bad_signature"},
		{"another federation", device, with(func(h *wire.Header) { h.Federation = "mine" }), "dropped: foreign"},
		{"another sender", device, with(func(h *wire.Header) { h.Sender = "drill" }), "dropped: foreign"},
		{"another's topic", s.topics.CoordinatorToAgent("drill"), good, "dropped: foreign"},
		{"a topic that is not ours", "fl/v1/mine/round", good, "dropped: foreign"},
		{"a topic of the coordinator", s.topics.AgentToCoordinator("press"), good, "dropped: foreign"},
		{"a part of a blob that nobody wants", s.topics.BlobPart(digest.TopicLevel(), "0"), good, "dropped: unwanted"},
		{"a standing on the round topic", roundTopic, good, "dropped: unwanted"},
		{"an announcement on the agent's topic", device, announcement(5, same), "dropped: unwanted"},
		{"a hello of the coordinator", device, s.message(s.header(wire.TypeHello, 4), (&wire.Hello{}).Body()),
			"dropped: unwanted"},
		{"an announcement without form", roundTopic, s.message(s.header(wire.TypeAnnouncement, 5), []byte("?")),
			"dropped: malformed"},
		{"an invitation without form", device, s.message(s.header(wire.TypeInvitation, 4), []byte("?")),
			"dropped: malformed"},
		{"an invitation of no weight", device,
			s.message(s.header(wire.TypeInvitation, 4),
				(&wire.Invitation{Agent: "press", Announcement: digest, RemainingMillis: 1}).Body()),
			"dropped: malformed"},
		{"an invitation of another agent", device,
			s.message(s.header(wire.TypeInvitation, 4),
				(&wire.Invitation{Agent: "other", Announcement: digest, RemainingMillis: 1, StepSizeWeight: 9}).Body()),
			"dropped: foreign"},
		{"a standing without form", device, s.message(s.header(wire.TypeHelloAnswer, 4), nil), "dropped: malformed"},
		{"an accepted without form", device, s.message(s.header(wire.TypeUpdateAccepted, 4), nil),
			"dropped: malformed"},
		{"a refused without form", device, s.message(s.header(wire.TypeUpdateRefused, 4), nil), "dropped: malformed"},
		{"a credit without form", device, s.message(s.header(wire.TypeChunkCredit, 4), nil), "dropped: malformed"},
		{"an older announcement", roundTopic, announcement(3, same), "ignored: older"},
		{"another announcement of the same order", roundTopic, announcement(4, func(a *wire.Announcement) { a.Seed++ }),
			"ignored: conflict"},
		{"a deleted announcement", roundTopic, nil, ""},
		{"accepted in another round", device, s.message(s.header(wire.TypeUpdateAccepted, 3), accepted), ""},
		{"refused in another round", device, s.message(s.header(wire.TypeUpdateRefused, 3), refused), ""},
		{"accepted, another update", device, s.message(s.header(wire.TypeUpdateAccepted, 4), make([]byte, 32)), ""},
		{"a credit for an update that is inline", device,
			s.message(s.header(wire.TypeChunkCredit, 4), (&wire.ChunkCredit{Update: update}).Body()), ""},
	}
}

// TestInvitedAgain checks that the agent offers its update at once when it is invited again, because the coordinator
// has restarted and lost the update.
func TestInvitedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		digest := s.announce(4, s.training(taskOf("a task"), 0, 0))
		s.invite(4, digest)
		wait(20 * time.Second) // The next retry is due after more than 10 s.
		before := len(s.heard(wire.TypeUpdate))
		s.invite(3, digest)
		if n := len(s.heard(wire.TypeUpdate)); n != before {
			t.Errorf("offered %d times more for the invitation to another round", n-before)
		}
		s.invite(4, digest)
		wait(time.Second)
		if n := len(s.heard(wire.TypeUpdate)); n != before+1 {
			t.Errorf("offered %d times more, want once", n-before)
		}
	})
}

// TestPresence checks that the agent signs the presence message for a connection before it signs the connection's MQTT
// will. Otherwise the coordinator would drop a will that arrives later.
func TestPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		s.stop()
		var states []string
		last := uint64(0)
		for _, e := range s.heard(wire.TypePresence) {
			p, err := wire.DecodePresence(e.Body)
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, p.State.String())
			if p.State == wire.PresenceOnline && e.Sequence >= last {
				t.Errorf("online has sequence %d, its will %d", e.Sequence, last)
			}
			last = e.Sequence
		}
		if len(states) != 3 || states[0] != "lost" || states[1] != "online" || states[2] != "offline" {
			t.Errorf("presence: %q", states)
		}
	})
}

// TestMissedAnnouncement checks that an agent requests an announcement again if a message of the coordinator contains
// the announcement's digest but the announcement has not arrived.
func TestMissedAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		times := func() int { return s.asked(s.topics.Announcement()) }
		digest := s.announce(4, s.training(taskOf("a task"), 0, 0))
		before := times()
		s.direct(wire.TypeHelloAnswer, 4, (&wire.HelloAnswer{Announcement: digest,
			SelectionStatus: wire.StatusSelectionPending}).Body())
		if n := times(); n != before {
			t.Errorf("asked %d times for what is there", n-before)
		}
		s.invite(5, wire.Digest{1})
		if n := times(); n != before+1 {
			t.Errorf("asked %d times, want once", n-before)
		}
	})
}

// TestUnreadAnnouncement checks that an agent that has received no announcement requests the retained announcement at
// growing intervals.
func TestUnreadAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		times := func(d time.Duration) int {
			before := s.asked(s.topics.Announcement())
			wait(d)
			return s.asked(s.topics.Announcement()) - before
		}
		if n := times(time.Minute); n != 1 {
			t.Errorf("asked %d times in the first minute, want once", n)
		}
		if n := times(24 * time.Hour); n < 24*4 || n > 24*9 {
			t.Errorf("asked %d times in a day", n)
		}
		s.announce(4, s.training(taskOf("a task"), 0, 0))
		if n := times(time.Hour); n != 0 {
			t.Errorf("asked %d times for what has come", n)
		}
		s.tell(mqtt.LinkDown{})
		if n := times(time.Hour); n != 0 {
			t.Errorf("asked %d times without a link", n)
		}
		s.tell(mqtt.LinkUp{})
		if n := times(time.Minute); n != 1 {
			t.Errorf("asked %d times over the next link, want once", n)
		}
	})
}

// TestOlderEpoch checks that an agent that follows an announcement of epoch 2 ignores messages of epoch 1, even after a
// restart. Such messages come from a coordinator that was replaced by another coordinator.
func TestOlderEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		ann := s.training(taskOf("a task"), 0, 0)
		s.epoch = 2
		digest := s.announce(4, ann)
		retained := s.announced
		s.invite(4, digest)
		wait(10 * time.Second)
		_, offered := s.update()
		s.epoch = 1
		s.checkOlder("at work", digest, offered.PayloadManifest.Hash)
		if ends := eventsOf[agentround.WorkEnded](s); len(ends) != 0 {
			t.Errorf("ended by a message of an older epoch: %+v", ends)
		}
		s.stop()
		s.start()
		s.checkOlder("started again", digest, offered.PayloadManifest.Hash)
		s.epoch = 2
		s.send(s.topics.Announcement(), retained)
		s.direct(wire.TypeUpdateAccepted, 4, (&wire.UpdateAccepted{Update: offered.PayloadManifest.Hash}).Body())
		if ends := eventsOf[agentround.WorkEnded](s); len(ends) != 1 || ends[0].Result != agentround.WorkAccepted {
			t.Errorf("the present epoch's answer ended the work as %+v", ends)
		}
	})
}

// checkOlder sends the agent a message of each kind, and a later announcement, all with an outdated epoch. The agent
// must ignore them.
func (s *scene) checkOlder(when string, digest, update wire.Digest) {
	s.t.Helper()
	later := s.training(taskOf("a task"), 0, 0)
	asked := len(s.heard(wire.TypeInvitationAccepted))
	for _, m := range []struct {
		typ  wire.MessageType
		body []byte
	}{
		{wire.TypeInvitation, (&wire.Invitation{Agent: "press", Announcement: digest, RemainingMillis: 60000,
			StepSizeWeight: 1,
			MustSendUpdate: true}).Body()},
		{wire.TypeHelloAnswer, (&wire.HelloAnswer{Announcement: digest,
			SelectionStatus: wire.StatusSelectionPending}).Body()},
		{wire.TypeUpdateAccepted, (&wire.UpdateAccepted{Update: update}).Body()},
		{wire.TypeUpdateRefused, (&wire.UpdateRefused{Update: update, Reason: wire.RefuseWrongRound}).Body()},
		{wire.TypeChunkCredit, (&wire.ChunkCredit{Update: update}).Body()},
	} {
		n := len(s.fates())
		s.direct(m.typ, 4, m.body)
		if got := s.fates()[n:]; len(got) != 1 || got[0] != "dropped: older_epoch" {
			s.t.Errorf("%s, %s: %q", when, m.typ, got)
		}
	}
	n := len(s.fates())
	s.announce(9, later)
	if got := s.fates()[n:]; len(got) != 1 || got[0] != "ignored: older" {
		s.t.Errorf("%s, announcement: %q", when, got)
	}
	if n := len(s.heard(wire.TypeInvitationAccepted)); n != asked {
		s.t.Errorf("%s: joined %d times more", when, n-asked)
	}
}
