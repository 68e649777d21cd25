package coordinator_test

import (
	"context"
	"crypto/ed25519"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// TestRevoked checks that a round neither waits for nor includes a participant that was removed from the list, or whose
// id was assigned to another device.
func TestRevoked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(keys map[wire.AgentID]ed25519.PublicKey)
	}{
		{"removed", func(keys map[wire.AgentID]ed25519.PublicKey) { delete(keys, "a3") }},
		{"replaced", func(keys map[wire.AgentID]ed25519.PublicKey) {
			keys["a3"] = hosts.TestKey("another device").Public().(ed25519.PublicKey)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 4, memory.Options{})
				f.cfg.Round.Quorum, f.cfg.Round.Gather.MinAgents, f.cfg.Round.Gather.TargetAgents = 3, 3, 0
				holdBack(f.agents[3], 3)
				f.start()
				f.until(time.Hour, "held back", func() bool {
					accepted := events[round.UpdateAccepted](f)
					return len(accepted) > 0 && accepted[len(accepted)-1].Round == 3 && len(accepted) == 4+4+3
				})
				keys := maps.Clone(f.keys)
				tt.change(keys)
				if err := f.host.SetAgents(context.Background(), enrolled.NewListFromKeys(keys)); err != nil {
					t.Fatal(err)
				}
				f.finished(time.Hour)
				for _, c := range events[round.RoundClosed](f) {
					if c.Round >= 3 && (c.ClosedByDeadline || c.AcceptedUpdates != 3 ||
						c.RoundDuration > 2*time.Minute ||
						len(c.MissingAgents) > 0) {
						t.Errorf("%+v", c)
					}
				}
				left := events[round.AgentLeft](f)
				if len(left) != 1 || left[0].Agent != "a3" || left[0].Reason != round.LeftRevoked ||
					left[0].EligibleAgents != 3 {
					t.Errorf("left: %+v", left)
				}
				for _, o := range events[round.RoundOpened](f) {
					if o.Round > 3 && o.EligibleAgents != 3 {
						t.Errorf("round %d is drawn from %d agents, 3 are left", o.Round, o.EligibleAgents)
					}
				}
			})
		})
	}
}

// TestRevokedIsTold checks that a removed device receives exactly one rejection, at once, over its open connection,
// even if the device sends nothing. Rejections of other devices are not affected.
func TestRevokedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.Quorum, f.cfg.Round.Gather.MinAgents, f.cfg.Round.Gather.TargetAgents = 2, 2, 0
		f.cfg.Round.MaxAggregations = 1
		var told [][]byte
		f.coord.moment = func(x any) {
			if m, is := x.(mqtt.Message); is && m.Topic == f.topics.CoordinatorToAgent("a2") {
				if e, err := wire.ParseEnvelope(m.Payload); err == nil && e.Type == wire.TypeMessageRejection {
					told = append(told, m.Payload)
				}
			}
		}
		f.start()
		f.finished(time.Hour)
		wait(time.Hour) // no further rejection may be sent in this hour
		keys := maps.Clone(f.keys)
		delete(keys, "a2")
		at := time.Now()
		if err := f.host.SetAgents(t.Context(), enrolled.NewListFromKeys(keys)); err != nil {
			t.Fatal(err)
		}
		f.until(time.Second, "told", func() bool { return len(events[presence.MessagesRejected](f, "a2")) > 0 })
		is := events[presence.MessagesRejected](f, "a2")
		if took := time.Since(at); took >= time.Second || is[0].Reason != wire.RejectedUnlistedAgent {
			t.Errorf("after %s: %+v", took, is)
		}
		if n := len(events[presence.MessagesRejected](f)); n != 1 || len(told) != 1 {
			t.Fatalf("%d agents are told, with %d messages", n, len(told))
		}
		if err := f.host.SetAgents(t.Context(), enrolled.NewListFromKeys(f.keys)); err != nil {
			t.Fatal(err)
		}
		f.broker.Disconnect(f.topics.ClientID("a2"))
		f.broker.Reconnect(f.topics.ClientID("a2"))
		f.until(time.Hour, "heard again", func() bool { return len(events[presence.MessagesRejected](f, "a2")) == 2 })
		replayer := f.broker.Connect("replayer", nil)
		defer replayer.Close()
		if err := replayer.Publish(mqtt.Message{Topic: f.topics.CoordinatorToAgent("a2"),
			Payload: told[0]}); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		if n := len(events[presence.MessagesRejected](f, "a2")); n != 2 {
			t.Errorf("a replay is believed: told %d times", n)
		}
	})
}

// holdBack suspends an agent after it has trained for round r, so that it sends no update.
func holdBack(p *process, r wire.RoundID) {
	p.moment = func(m any) {
		if x, ok := m.(training.LocalTrainingFinished); ok && x.Round >= r {
			<-time.After(time.Hour)
		}
	}
}

// TestRevokedWhileStopped checks that a resumed round does not wait for a participant that was removed from the list
// while the coordinator was down.
func TestRevokedWhileStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 4, memory.Options{})
		f.cfg.Round.Quorum, f.cfg.Round.Gather.MinAgents, f.cfg.Round.Gather.TargetAgents = 3, 3, 0
		holdBack(f.agents[3], 3)
		f.start()
		f.until(time.Hour, "held back", func() bool { return len(events[round.UpdateAccepted](f)) == 4+4+3 })
		f.coord.kill()
		delete(f.keys, "a3")
		f.cfg.Agents = enrolled.NewListFromKeys(f.keys)
		f.coord.again()
		f.finished(time.Hour)
		for _, c := range events[round.RoundClosed](f) {
			if c.Round == 3 && (c.ClosedByDeadline || c.AcceptedUpdates != 3 || c.RoundDuration > 2*time.Minute) {
				t.Errorf("%+v", c)
			}
		}
	})
}
