package coordinator_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// lastRejection returns the reason of the newest rejection that an agent reported, and the number of rejections that it
// reported.
func lastRejection(f *federation, who wire.AgentID) (reason wire.MessageRejectionReason, times int) {
	all := events[presence.MessagesRejected](f, who)
	if len(all) == 0 {
		return 0, 0
	}
	return all[len(all)-1].Reason, len(all)
}

func countsIt(f *federation, who wire.AgentID) func() bool {
	before := len(events[round.AgentEligible](f))
	return func() bool {
		for _, c := range events[round.AgentEligible](f)[before:] {
			if c.Agent == who {
				return true
			}
		}
		return false
	}
}

// TestRejected checks that the coordinator sends a device the reason why its messages are ignored, and stops once the
// messages are accepted. The cases are an unlisted device, a device with a different key, and a device that is removed
// from the list while it works.
func TestRejected(t *testing.T) {
	for _, c := range []struct {
		name    string
		reason  wire.MessageRejectionReason
		begin   func(keys map[wire.AgentID]ed25519.PublicKey)
		enrolls bool // true if the device is in the initial list
	}{
		{"unlisted", wire.RejectedUnlistedAgent, func(keys map[wire.AgentID]ed25519.PublicKey) { delete(keys, "a2") },
			false},
		{"other key", wire.RejectedOtherKey, func(keys map[wire.AgentID]ed25519.PublicKey) {
			keys["a2"] = hosts.TestKey("another device").Public().(ed25519.PublicKey)
		}, false},
		{"revoked", wire.RejectedUnlistedAgent, func(keys map[wire.AgentID]ed25519.PublicKey) { delete(keys, "a2") },
			true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := endless(t)
				f.agents[2].cfg.Presence.MetricsReports = presence.MetricsReportConfig{ReportInterval: 5 * time.Minute,
					ReadMetrics: func() []wire.ReportMetric { return nil }}
				f.start()
				list := func(change func(map[wire.AgentID]ed25519.PublicKey)) {
					keys := maps.Clone(f.keys)
					change(keys)
					if err := f.host.SetAgents(context.Background(), enrolled.NewListFromKeys(keys)); err != nil {
						t.Fatal(err)
					}
				}
				if c.enrolls {
					f.until(time.Hour, "counted", countsIt(f, "a2"))
				}
				changed := time.Now()
				list(c.begin)
				f.until(time.Hour, "told", func() bool {
					reason, _ := lastRejection(f,
						"a2")
					return reason == c.reason
				})
				if !testing.Short() {
					wait(2 * time.Hour)
				}
				wait(time.Hour)
				if _, times := lastRejection(f, "a2"); times != 1 {
					t.Errorf("the agent tells of it %d times", times)
				}
				perMinute(t, f, changed)
				again := countsIt(f, "a2")
				list(func(map[wire.AgentID]ed25519.PublicKey) {})
				f.until(time.Hour, "heard", func() bool {
					reason, n := lastRejection(f, "a2")
					return n == 2 && reason == 0
				})
				f.until(time.Hour, "counted", again)
			})
		})
	}
}

// perMinute checks that the coordinator sends at most one rejection per minute, except when agents are removed from the
// list.
func perMinute(t *testing.T, f *federation, revoked time.Time) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var last time.Time
	n := 0
	for _, h := range f.log {
		if _, is := h.event.(devices.AgentRejected); is && h.at.After(revoked) {
			if h.at.Sub(last) < time.Minute {
				t.Errorf("answers at %v and %v", last, h.at)
			}
			last, n = h.at, n+1
		}
	}
	if n == 0 {
		t.Error("the coordinator tells of no answer")
	}
}

// TestReset checks that a device which lost its state folder is accepted after it received a rejection and its boot
// counter was reset. Replaying the rejection later has no effect.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := endless(t)
		var answers []mqtt.Message
		f.coord.moment = func(x any) {
			if m, ok := x.(mqtt.Message); ok {
				if e, err := wire.ParseEnvelope(m.Payload); err == nil && e.Type == wire.TypeMessageRejection {
					answers = append(answers, m)
				}
			}
		}
		p := f.agents[2]
		p.boot = 6
		f.start()
		f.until(time.Hour, "rounds", closedRounds(f, 3))
		p.stop()
		p.dir, p.boot = t.TempDir(), 0
		admin := f.connect("admin", nil)
		if err := admin.Publish(mqtt.Message{Topic: f.topics.Presence(p.id), Retained: true}); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		p.start()
		f.until(time.Hour, "told", func() bool { r, _ := lastRejection(f, p.id); return r == wire.RejectedOldEpoch })
		if err := f.host.ResetBootCounter(t.Context(), "a9"); !errors.Is(err, coordinator.ErrUnlisted) {
			t.Errorf("reset of a stranger: error %v", err)
		}
		if err := f.host.ResetBootCounter(t.Context(), p.id); err != nil {
			t.Fatal(err)
		}
		f.until(time.Hour, "heard", func() bool { r, n := lastRejection(f, p.id); return n == 2 && r == 0 })
		accepted := len(events[round.UpdateAccepted](f))
		f.until(time.Hour, "an update", func() bool {
			for _, u := range events[round.UpdateAccepted](f)[accepted:] {
				if u.Agent == p.id {
					return true
				}
			}
			return false
		})
		f.mu.Lock()
		again := answers
		f.mu.Unlock()
		dropped := len(events[agent.MessageDropped](f, p.id))
		for _, m := range again {
			if err := admin.Publish(m); err != nil {
				t.Error(err)
			}
		}
		wait(time.Minute)
		if _, n := lastRejection(f, p.id); n != 2 || len(again) == 0 {
			t.Errorf("%d answers, replayed, are told %d times", len(again), n)
		}
		if n := len(events[agent.MessageDropped](f, p.id)) - dropped; n != len(again) {
			t.Errorf("%d of %d replayed answers are dropped", n, len(again))
		}
		if err := admin.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRejectedClone checks that if two devices use one identity, the device whose messages are ignored receives a
// rejection.
func TestRejectedClone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := endless(t)
		f.start()
		f.until(12*time.Hour, "rounds before the clone comes", closedRounds(f, 3))
		second := *f.agents[0]
		second.life, second.dir, second.boot = nil, t.TempDir(), 4
		f.agents = append(f.agents, &second)
		second.start()
		wait(3 * time.Hour)
		cloned := 0
		for _, u := range events[presence.MessagesRejected](f, "a0") {
			if u.Reason == wire.RejectedClone {
				cloned++
			}
		}
		if cloned == 0 || cloned > 2 {
			t.Errorf("the two tell %d times that another one is there: %+v", cloned,
				events[presence.MessagesRejected](f, "a0"))
		}
		perMinute(t, f, time.Time{})
	})
}

// TestReplaced checks that an agent id can be assigned to another device with a different key. Once the list contains
// the new key, the device is accepted without a reset, although its boot counter starts at 1.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := endless(t)
		p := f.agents[2]
		p.boot = 6
		f.start()
		f.until(time.Hour, "rounds", closedRounds(f, 3))
		p.stop()
		p.dir, p.boot, p.key = t.TempDir(), 0, hosts.TestKey("another device")
		p.start()
		f.until(time.Hour, "told", func() bool { r, _ := lastRejection(f, p.id); return r == wire.RejectedOtherKey })
		keys := maps.Clone(f.keys)
		keys[p.id] = p.key.Public().(ed25519.PublicKey)
		accepted := len(events[round.UpdateAccepted](f))
		if err := f.host.SetAgents(t.Context(), enrolled.NewListFromKeys(keys)); err != nil {
			t.Fatal(err)
		}
		f.until(time.Hour, "an update", func() bool {
			for _, u := range events[round.UpdateAccepted](f)[accepted:] {
				if u.Agent == p.id {
					return true
				}
			}
			return false
		})
		if r, n := lastRejection(f, p.id); r != 0 || n != 2 {
			t.Errorf("told %d times, the last reason is %v", n, r)
		}
	})
}
