package agent_test

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// retainedBy returns a retained announcement of a federation that is signed with the given key.
func (s *scene) retainedBy(key ed25519.PrivateKey, federation wire.FederationName) mqtt.MessageReceived {
	h, a := s.header(wire.TypeAnnouncement, 1), s.training(taskOf("a"), 0, 0)
	h.Federation = federation
	return mqtt.MessageReceived{Message: mqtt.Message{Topic: "fl/v1/" + string(federation) + "/round", Retained: true,
		Payload: wire.SignEnvelope(nil, h, a.Body(), key)}}
}

// TestAnnouncementMissing checks that the agent reports each cause of a missing announcement, and reports when the
// announcement is no longer missing.
func TestAnnouncementMissing(t *testing.T) {
	stranger := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))
	const rounds = "fl/v1/+/round"
	for name, tt := range map[string]struct {
		play   func(s *scene)
		within time.Duration
		want   announcement.MissingReason
		others []wire.FederationName
	}{
		"wrong key": {func(s *scene) { s.tell(s.retainedBy(stranger, "plant")) }, 0, announcement.UntrustedKey, nil},
		"no access": {func(*scene) {}, 25 * time.Second, announcement.AccessDenied, nil},
		"none": {func(s *scene) {
			s.returnsProbe()
			wait(26 * time.Second)
			s.tell(s.retainedBy(stranger, "mill"))
		}, 10 * time.Second, announcement.NotRetained, []wire.FederationName{"mill"}},
		"wrong federation": {func(s *scene) {
			s.returnsProbe()
			wait(26 * time.Second)
			if s.asked(rounds) != 1 {
				s.t.Errorf("subscribed to %q, want %s", s.subscribed, rounds)
			}
			s.tell(s.retainedBy(stranger, "mill"))
			s.tell(s.retainedBy(s.key, "plants"))
		}, 10 * time.Second, announcement.OtherFederation, []wire.FederationName{"plants"}},
		"refused search": {func(s *scene) {
			s.returnsProbe()
			wait(26 * time.Second)
			s.tell(mqtt.SubscriptionRefused{Filter: rounds, SubackCode: mqtt.SubackFailure})
			if all := eventsOf[host.RefusedSubscriptionsChanged](s); len(all) > 0 {
				s.t.Errorf("the refused search is reported: %+v", all)
			}
		}, time.Second, announcement.NotRetained, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.cfg.SelfTestTimeout = 2 * time.Minute
				s.start()
				tt.play(s)
				wait(tt.within)
				all := eventsOf[announcement.AnnouncementMissing](s)
				if len(all) != 1 || all[0].Reason != tt.want || !slices.Equal(all[0].OtherFederations, tt.others) {
					t.Fatalf("events %+v, want one with %s and %v", all, tt.want, tt.others)
				}
				if s.asked(rounds) != 0 {
					t.Error("the agent still receives the announcements of all federations")
				}
				s.announce(1, s.training(taskOf("a"), 0, 0))
				all = eventsOf[announcement.AnnouncementMissing](s)
				if len(all) != 2 || all[1].Reason != "" {
					t.Errorf("events %+v, want that an announcement has arrived", all)
				}
				// Without access rules, any client may publish such an announcement.
				s.tell(s.retainedBy(stranger, "plant"))
				if n := len(eventsOf[announcement.AnnouncementMissing](s)); n != 2 {
					t.Errorf("%d events after an announcement of a stranger, want 2", n)
				}
			})
		})
	}
}

// TestMissingAfterReconnect checks that the agent determines the cause of a missing announcement again after a
// reconnection. The broker's access rules must remain the cause until a broker test succeeds. A wrong key must not
// remain the cause after the announcement signed with that key was removed.
func TestMissingAfterReconnect(t *testing.T) {
	stranger := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))
	for name, tt := range map[string]struct {
		before func(s *scene)
		want   announcement.MissingReason
	}{
		"access": {func(*scene) { wait(25 * time.Second) }, announcement.AccessDenied},
		"wrong key": {func(s *scene) { s.tell(s.retainedBy(stranger, "plant")); s.returnsProbe() },
			announcement.NotRetained},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.cfg.SelfTestTimeout = 2 * time.Minute
				s.start()
				tt.before(s)
				s.tell(mqtt.LinkDown{})
				s.tell(mqtt.LinkUp{})
				if tt.want == announcement.NotRetained {
					s.returnsProbe()
				}
				wait(40 * time.Second)
				all := eventsOf[announcement.AnnouncementMissing](s)
				if len(all) == 0 || all[len(all)-1].Reason != tt.want {
					t.Errorf("events %+v, want %s at last", all, tt.want)
				}
			})
		})
	}
}

// TestAccessRepaired checks that the agent renews its subscription when a broker test succeeds again, so that it
// receives retained messages.
func TestAccessRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.cfg.SelfTestTimeout = 2 * time.Minute
		s.start()
		wait(21 * time.Second) // The broker denies access.
		before := s.asked(s.topics.Announcement())
		wait(30 * time.Second)
		s.returnsProbe()
		wait(2 * time.Minute)
		s.returnsProbe() // The test's large message arrives too.
		if n := s.asked(s.topics.Announcement()); n <= before {
			t.Errorf("subscribed %d times to the announcements, as before the rules were loaded", n)
		}
	})
}

// returnsProbe delivers the newest message of the broker test back to the agent.
func (s *scene) returnsProbe() {
	s.t.Helper()
	s.mu.Lock()
	i := len(s.said) - 1
	for i >= 0 && s.said[i].Topic != s.topics.SelfTest("press") {
		i--
	}
	if i < 0 {
		s.mu.Unlock()
		s.t.Fatal("the test of the broker has not begun")
	}
	m := s.said[i]
	s.mu.Unlock()
	s.tell(mqtt.MessageReceived{Message: m})
}
