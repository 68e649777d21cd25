package coordinator_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// TestOldHellos checks that an agent that has stopped does not become eligible if its old hellos are replayed to a
// restarted coordinator.
func TestOldHellos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 4, memory.Options{})
		f.cfg.Round.Quorum, f.cfg.Round.Gather.MinAgents, f.cfg.Round.Gather.TargetAgents,
			f.cfg.Round.MaxAggregations = 3, 3,
			0, 3
		hellos := make(chan mqtt.Message, 100)
		evil := f.broker.Connect("evil", nil)
		defer evil.Close()
		evil.Subscribe(mqtt.AtMostOnce, f.topics.AllAgentToCoordinatorFilter(), f.topics.CoordinatorToAgent("a3"))
		var answers atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for e := range evil.Events() {
				m, ok := e.(mqtt.MessageReceived)
				if !ok {
					continue
				}
				x, err := f.reveal(m.Message)
				switch {
				case err != nil:
				case x.Type == wire.TypeHello && m.Topic == f.topics.AgentToCoordinator("a3"):
					hellos <- m.Message
				case x.Type == wire.TypeHelloAnswer && m.Topic == f.topics.CoordinatorToAgent("a3"):
					answers.Add(1)
				}
			}
		}()
		f.start()
		f.until(time.Hour, "in round 2", func() bool {
			opened := events[round.RoundOpened](f)
			return len(opened) > 0 && opened[len(opened)-1].Round == 2
		})
		f.coord.kill()
		f.agents[3].kill()
		counted := len(events[round.AgentEligible](f))
		f.coord.again()
		f.until(time.Hour, "up again", func() bool { return len(events[coordinator.RoundMachineStarted](f)) > 1 })
		synctest.Wait()
		if len(hellos) == 0 {
			t.Fatal("no hello was recorded")
		}
		answers.Store(0)
		for range len(hellos) {
			if err := evil.Publish(<-hellos); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if answers.Load() == 0 {
			t.Error("no hello was answered with the present announcement, of which its agent may not know")
		}
		f.finished(time.Hour)
		for _, c := range events[round.AgentEligible](f)[counted:] {
			if c.Agent == "a3" {
				t.Errorf("an old hello was believed: %+v", c)
			}
		}
		if !slices.ContainsFunc(events[coordinator.MessageDropped](f), func(d coordinator.MessageDropped) bool {
			return d.Agent == "a3" && d.Reason == devices.DropOutdated
		}) {
			t.Errorf("dropped: %+v", events[coordinator.MessageDropped](f))
		}
	})
}
