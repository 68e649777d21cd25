package coordinator_test

import (
	"context"
	"crypto/ed25519"
	"maps"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// alive calls Coordinator.Alive with a timeout of 20 seconds.
func (f *federation) alive() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return f.host.Alive(ctx)
}

// TestAlive checks that a coordinator responds while it works or waits for disk space, and does not respond while it
// hangs.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.MaxAggregations = 2
		full, hang, hung := make(chan func(), 1), make(chan struct{}), make(chan struct{})
		f.coord.moment = func(m any) {
			switch m := m.(type) {
			case round.RoundClosed:
				if m.Round == 2 {
					full <- obstructSlots(t, f.coord.path("run"))
				}
			case round.RunFinished:
				close(hung)
				<-hang
			}
		}
		f.start()
		undo := <-full
		wait(12 * time.Second)
		for range 3 {
			if err := f.alive(); err != nil {
				t.Errorf("with a full disk: %v", err)
			}
		}
		undo()
		<-hung
		if f.alive() == nil {
			t.Error("a coordinator that hangs is alive")
		}
		close(hang)
		if err := f.alive(); err != nil {
			t.Error(err)
		}
		f.coord.stop()
		if f.alive() == nil {
			t.Error("a coordinator that has ended is alive")
		}
	})
}

// TestSetAgents checks that during a run an agent added to the list begins to train, and a removed agent stops.
func TestSetAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.MaxAggregations, f.cfg.Round.Participants, f.cfg.Round.Quorum = 0, 3, 1
		f.cfg.Round.Gather.MinAgents = 1
		all := maps.Clone(f.keys)
		delete(f.keys, "a2")
		f.cfg.Agents = enrolled.NewListFromKeys(f.keys)
		f.start()
		f.until(time.Hour, "dropped", func() bool {
			return len(events[coordinator.MessageDropped](f)) > 0 && len(events[training.LocalTrainingFinished](f,
				"a0")) > 0
		})
		if d := events[coordinator.MessageDropped](f)[0]; d.Agent != "a2" || d.Reason != devices.DropUnknown {
			t.Errorf("dropped: %+v", d)
		}
		if n := len(events[training.LocalTrainingFinished](f, "a2")); n > 0 {
			t.Errorf("an agent that is not in the list trained %d times", n)
		}
		delete(all, "a0")
		if err := f.host.SetAgents(t.Context(), enrolled.NewListFromKeys(all)); err != nil {
			t.Fatal(err)
		}
		f.until(time.Hour, "taken in", func() bool { return len(events[training.LocalTrainingFinished](f, "a2")) > 3 })
		want := []coordinator.AgentListChanged{{ListedAgents: 2}, {ListedAgents: 2,
			RemovedAgents: []wire.AgentID{"a0"}}}
		if lists := events[coordinator.AgentListChanged](f); !reflect.DeepEqual(lists, want) {
			t.Errorf("lists %v, want %v", lists, want)
		}
		before := len(events[training.LocalTrainingFinished](f, "a0"))
		f.until(time.Hour, "going on", func() bool { return len(events[training.LocalTrainingFinished](f, "a2")) > 8 })
		// The removed agent may finish the round to which it was already invited.
		if after := len(events[training.LocalTrainingFinished](f, "a0")); after > before+1 {
			t.Errorf("an agent that is no longer in the list trained %d times more", after-before)
		}
		f.coord.stop()
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if f.host.SetAgents(ended, enrolled.NewListFromKeys(all)) == nil {
			t.Error("a coordinator that has ended takes a list")
		}
	})
}

// TestSetAgentsReplacesADevice checks that a new device can take over the id of a device that has booted many times.
// The new device has a new key, and its boot counter starts from the beginning.
func TestSetAgentsReplacesADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		f.cfg.Round.MaxAggregations, f.cfg.Round.Quorum, f.cfg.Round.Gather.TargetAgents,
			f.cfg.Round.Gather.MinAgents = 0, 1,
			0, 1
		device := f.agents[1]
		device.boot = 6
		f.start()
		trained := func() int { return len(events[training.LocalTrainingFinished](f, device.id)) }
		f.until(time.Hour, "trained", func() bool { return trained() > 2 })
		device.stop()
		device.key, device.dir, device.boot = hosts.TestKey("its successor"), t.TempDir(), 0
		keys := maps.Clone(f.keys)
		keys[device.id] = device.key.Public().(ed25519.PublicKey)
		if err := f.host.SetAgents(t.Context(), enrolled.NewListFromKeys(keys)); err != nil {
			t.Fatal(err)
		}
		before := trained()
		device.start()
		f.until(time.Hour, "trained on the other device", func() bool { return trained() > before+2 })
	})
}
