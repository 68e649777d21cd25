package coordinator_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// TestLacks simulates a broker cluster node that delivers published messages but returns no retained parts of a model,
// as a NATS node does when it cannot reach the other nodes. Agents must request the parts from the coordinator, whose
// node returns them. No agent may miss a round or be considered unfit.
func TestLacks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rounds int
		setup  func(*federation)
		most   time.Duration // maximum duration of a round
	}{
		{"small model", 3, func(f *federation) {
			large(f)
			f.cfg.Task.Model.HiddenUnits = []uint32{400, 400}
		}, 8 * time.Second},
		{"large model", 1, huge, 20 * time.Second}, // windows of chunks are transferred one by one
		{"task", 3, wideTask, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 2, memory.Options{ServeStaleRetained: func(client, topic string) bool {
					return strings.Contains(topic, "/m/") && !strings.HasSuffix(client, string(wire.CoordinatorID))
				}})
				f.cfg.Standardize = false
				tt.setup(f)
				f.cfg.Round.MaxAggregations, f.cfg.Round.Gather.WindowLength = tt.rounds, time.Minute
				f.coord.start()
				wait(time.Minute)
				for _, a := range f.agents {
					a.start()
				}
				f.finished(time.Hour)
				f.checkOnce(tt.name)
				if no := events[round.AgentDeclined](f); len(no) > 0 {
					t.Errorf("declined: %+v", no)
				}
				if no := events[round.AgentUnfit](f); len(no) > 0 {
					t.Errorf("unfit: %+v", no)
				}
				for _, c := range events[round.RoundClosed](f) {
					if c.AcceptedUpdates != 2 || c.RoundDuration > tt.most {
						t.Errorf("%+v", c)
					}
				}
			})
		})
	}
}
