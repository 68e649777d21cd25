package coordinator_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/upload"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// TestMissedRounds checks that an agent which was offline during several rounds learns whether its update was used, up
// to 8 rounds later.
func TestMissedRounds(t *testing.T) {
	for missed, want := range map[int]wire.UpdateFate{3: wire.FateAggregated, 12: wire.FateRoundForgotten} {
		t.Run(fmt.Sprintf("%d rounds", missed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 3, memory.Options{})
				f.cfg.Standardize, f.cfg.Round.MaxAggregations, f.cfg.Round.Participants = false, 0, 3
				f.cfg.Task.Training.StepSize = 1e-5
				f.cfg.Round.Quorum, f.cfg.Round.Gather.TargetAgents, f.cfg.Round.Gather.MinAgents = 1, 0, 1
				a, accepted := f.agents[2], make(chan wire.RoundID, 1)
				a.moment = func(m any) {
					if x, ok := m.(agentround.WorkEnded); ok && x.Result == agentround.WorkAccepted {
						a.moment = nil
						a.kill()
						accepted <- x.Round
					}
				}
				f.start()
				r := <-accepted
				<-a.life.done
				f.until(time.Hour, "rounds without it", func() bool {
					closed := events[round.RoundClosed](f)
					return len(closed) > 0 && closed[len(closed)-1].Round >= r+wire.RoundID(missed)
				})
				a.start()
				settled := func() []upload.UpdateFateReceived { return events[upload.UpdateFateReceived](f, a.id) }
				f.until(time.Hour, "told", func() bool { return len(settled()) > 0 })
				if got := settled()[0]; got != (upload.UpdateFateReceived{Round: r, Fate: want}) {
					t.Errorf("told %+v, want round %d %s", got, r, want)
				}
			})
		})
	}
}
