package agent_test

import (
	"crypto/ed25519"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// rooted returns a test scene whose agent has the first version of a root document (list of trusted keys).
func rooted(t *testing.T) *scene {
	s := newScene(t)
	s.cfg.Identity.Coordinator = nil
	s.cfg.Identity.Root = rootAfter(nil, hosts.TestKey("root"), s.key)
	return s
}

// rootAfter returns the next version of a root document, which contains the given coordinator keys.
func rootAfter(held *wire.RootDocument, root ed25519.PrivateKey, coordinator ...ed25519.PrivateKey) *wire.RootDocument {
	d := wire.RootDocument{Federation: "plant", Version: wire.FirstRootVersion,
		CoordinatorKey: wire.SigningPublicKeyOf(coordinator[0])}
	for _, k := range coordinator[1:] {
		d.ExtraCoordinatorKeys = append(d.ExtraCoordinatorKeys, wire.SigningPublicKeyOf(k))
	}
	before := root
	if held == nil {
		before = nil
	} else {
		d.Version = held.Version + 1
	}
	d.Sign(root, before)
	return &d
}

// taken returns the versions of the root documents that the agent has installed.
func (s *scene) taken() (all []wire.RootVersion) {
	for _, f := range eventsOf[identity.RootDocumentAdopted](s) {
		all = append(all, f.Version)
	}
	return all
}

// obeys reports whether the agent follows an announcement that is signed with this key and names this version of the
// root document.
func (s *scene) obeys(key ed25519.PrivateKey, root wire.RootVersion, epoch wire.Epoch, r wire.RoundID) bool {
	s.t.Helper()
	a := s.training(taskOf("air"), 0, 0)
	h := s.header(wire.TypeAnnouncement, r)
	h.Root, h.Epoch = root, epoch
	before := len(eventsOf[agentround.AnnouncementObeyed](s))
	s.send(s.topics.Announcement(), wire.SignEnvelope(nil, h, a.Body(), key))
	return len(eventsOf[agentround.AnnouncementObeyed](s)) > before
}

// TestRootIsStored checks that the keys of a new root document are valid after the document is saved, and after a
// restart. Until then the agent must ignore announcements signed with these keys. Afterwards, epochs that were used
// with the previous key must no longer apply.
func TestRootIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rooted(t)
		second := hosts.TestKey("second")
		s.start()
		if s.asked(s.topics.RootDocument(2)) != 1 || !s.obeys(s.key, 1, 1, 1) {
			t.Fatal("the first root does not count")
		}
		if !s.obeys(s.key, 1, 1<<64-1, 1) {
			t.Fatal("a thief of the key is not obeyed: nothing is to be healed")
		}
		d := rootAfter(s.cfg.Identity.Root, hosts.TestKey("root"), second)
		if err := os.Rename(s.cfg.StateDir, s.cfg.StateDir+".away"); err != nil {
			t.Fatal(err)
		}
		s.send(s.topics.RootDocument(2), d.Bytes())
		if len(s.taken()) > 0 || s.obeys(second, 2, 1, 1) || !s.obeys(s.key, 1, 1<<64-1, 2) {
			t.Error("a root document counts that is not on the disk")
		}
		if err := os.Rename(s.cfg.StateDir+".away", s.cfg.StateDir); err != nil {
			t.Fatal(err)
		}
		rounds := s.asked(s.topics.Announcement())
		wait(10 * time.Second)
		if got := s.taken(); len(got) != 1 || got[0] != 2 || s.asked(s.topics.RootDocument(2)) != 0 ||
			s.asked(s.topics.RootDocument(3)) != 1 || s.asked(s.topics.Announcement()) <= rounds {
			t.Fatalf("on the disk: taken %v, subscribed %v", got, s.subscribed)
		}
		if s.obeys(s.key, 1, 1<<64-1, 3) || s.obeys(s.key, 2, 1<<64-1, 3) {
			t.Error("a key that the document does not name counts")
		}
		if !s.obeys(second, 2, 1, 1) {
			t.Error("the floor that was burnt under the first root holds under the second")
		}
		s.stop()
		s.start()
		if s.asked(s.topics.RootDocument(3)) == 0 || s.obeys(s.key, 1, 1<<64-1, 4) || !s.obeys(second, 2, 1, 2) {
			t.Error("the next start has forgotten the root document")
		}
		s.stop()
		// root document that is configured after the device has joined again
		s.cfg.Identity.Root = rootAfter(d, hosts.TestKey("root"), s.key)
		s.start()
		if s.obeys(second, 2, 1, 9) || !s.obeys(s.key, 3, 1, 1) {
			t.Error("a root document that a person has put there does not count")
		}
	})
}

// TestForeignRoots checks that the agent ignores a root document that is not a valid successor of its current root
// document.
func TestForeignRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rooted(t)
		s.start()
		own, other := hosts.TestKey("root"), hosts.TestKey("stranger")
		second := rootAfter(s.cfg.Identity.Root, own, s.key)
		third := rootAfter(second, own, s.key)
		for name, m := range map[string]struct {
			version wire.RootVersion
			payload []byte
		}{
			"another root's":     {2, rootAfter(s.cfg.Identity.Root, other, other).Bytes()},
			"the one after next": {3, third.Bytes()},
			"on a wrong topic":   {2, third.Bytes()},
			"the first again":    {2, s.cfg.Identity.Root.Bytes()},
			"cut off":            {2, second.Bytes()[:100]},
			"nothing":            {2, nil},
		} {
			s.send(s.topics.RootDocument(m.version), m.payload)
			if len(s.taken()) > 0 {
				t.Fatalf("%s: taken %v", name, s.taken())
			}
		}
		asked := s.asked(s.topics.RootDocument(2))
		wait(time.Minute)
		for range 10 { // Any client can send this message.
			s.obeys(other, 7, 1, 1)
		}
		if got := s.asked(s.topics.RootDocument(2)); got != asked+1 {
			t.Errorf("the next root is asked for %d times", got-asked)
		}
		s.send(s.topics.RootDocument(2), second.Bytes())
		s.send(s.topics.RootDocument(3), third.Bytes())
		if got := s.taken(); len(got) != 2 {
			t.Errorf("taken %v", got)
		}
	})
}

// TestRevokedByRoot checks that the agent of a device ends when a root document revokes the device, and does not start
// again.
func TestRevokedByRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rooted(t)
		s.start()
		d := rootAfter(s.cfg.Identity.Root, hosts.TestKey("root"), s.key)
		d.RevokedAgents = []wire.AgentID{"press"}
		d.Sign(hosts.TestKey("root"), hosts.TestKey("root"))
		s.send(s.topics.RootDocument(2), d.Bytes())
		var revoked *identity.RevokedError
		if err := <-s.done; !errors.As(err, &revoked) || revoked.Version != 2 {
			t.Fatalf("it ends with %v", err)
		}
		s.done = nil
		s.cfg.BootEpoch++
		if _, err := agent.New(s.cfg, nil); !errors.As(err, &revoked) {
			t.Errorf("the next start: %v", err)
		}
	})
}

// TestStaleAnnouncements checks that an agent reports when no announcement has arrived for three times the longest
// round, and when an announcement arrives again. A replayed announcement must not end the condition.
func TestStaleAnnouncements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		a := s.training(taskOf("air"), 0, 0)
		a.IssuedAt = 1_800_000_000
		s.announce(3, a)
		wait(179 * time.Second)
		s.send(s.topics.Announcement(), s.announced)
		if told := eventsOf[announcement.AnnouncementsStale](s); len(told) > 0 {
			t.Errorf("too early: %v", told)
		}
		wait(2 * time.Second)
		s.send(s.topics.Announcement(), s.announced)
		if told := eventsOf[announcement.AnnouncementsStale](s); len(told) != 1 || told[0].StaleFor != 3*time.Minute {
			t.Fatalf("after three times the round: %v", told)
		}
		a.Phase, a.IssuedAt = wire.PhaseIdle, 1_800_000_181
		s.announce(4, a)
		wait(time.Hour)
		if told := eventsOf[announcement.AnnouncementsStale](s); len(told) != 2 || told[1].StaleFor != 0 {
			t.Errorf("when one has come, and none is due: %v", told)
		}
	})
}
