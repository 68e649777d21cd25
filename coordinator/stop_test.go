package coordinator_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/stop"
)

// TestStopByPatience checks that a run ends when the risk has not improved for long enough (patience rule), with and
// without held-out data, even if the coordinator is killed repeatedly. The run remains finished until the rule changes,
// and the history contains the reason.
func TestStopByPatience(t *testing.T) {
	for name, heldOut := range map[string]bool{"held out": true, "told": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 3, memory.Options{})
				if heldOut {
					f.held(rowsOf(9, 50))
				}
				f.cfg.Round.MaxAggregations, f.cfg.Round.Stop = 0, stop.Config{Patience: 4, MinImprovementShare: 0.1}
				f.cfg.KeepModels = 0
				f.start()
				for n := 3; n < 9; n += 3 { // kill the coordinator in the middle of the run
					f.until(time.Hour, "trained", func() bool { return len(events[aggregation.ModelReady](f)) >= n })
					f.coord.kill()
					f.coord.start()
				}
				f.finished(10 * time.Hour)
				wait(time.Second) // agents may learn of the end before the event and the history line
				end := events[round.RunFinished](f)[0]
				judged := events[round.StopProgressReported](f)
				last := judged[len(judged)-1]
				if end.Reason != stop.PatienceExhausted || last.AggregationsSinceBest != 4 ||
					last.UsesHeldOutRisk != heldOut || last.TransferredBytes == 0 {
					t.Errorf("finished: %+v; the last judgement: %+v", end, last)
				}
				if r := present(t,
					f); r.RunStopReason != stop.PatienceExhausted || r.StopState.AggregationsSinceBest != 4 {
					t.Errorf("the record: %+v", r.StopState)
				}
				line := newestLine(t, f.coord.path("history.jsonl"))
				if line["ended"] != "patience" || (line["held_out_risk"] != nil) != heldOut {
					t.Errorf("the history: %v", line)
				}
				f.coord.stop()
				f.coord.start()
				f.until(time.Hour, "finished again", func() bool { return len(events[round.RunFinished](f)) == 2 })
				if again := events[round.RunFinished](f)[1]; again != end {
					t.Errorf("after a restart: %+v, before: %+v", again, end)
				}
				f.cfg.Round.Stop.Patience = 5
				f.coord.stop()
				f.coord.start()
				f.until(time.Hour, "finished later", func() bool { return len(events[round.RunFinished](f)) == 3 })
				if later := events[round.RunFinished](f)[2]; later.ModelVersion <= end.ModelVersion {
					t.Errorf("with more patience: %+v, before: %+v", later, end)
				}
			})
		})
	}
}

func newestLine(t *testing.T, path string) (line map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	must(t, json.Unmarshal([]byte(lines[len(lines)-1]), &line))
	return line
}

// TestPatienceAfterAChangeOfMembers checks that after an agent joins or is removed, new risks are not compared with
// risks of the previous group of agents. The run then continues for at least the number of rounds in patience.
func TestPatienceAfterAChangeOfMembers(t *testing.T) {
	const patience = 12
	for _, joins := range []bool{true, false} {
		t.Run(fmt.Sprint(joins), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 3, memory.Options{})
				f.cfg.Round.MaxAggregations, f.cfg.Round.Stop = 0, stop.Config{Patience: patience,
					MinImprovementShare: 0.01}
				f.cfg.Round.Gather.TargetAgents, f.cfg.Round.Gather.MinAgents, f.cfg.Round.Quorum = 0, 2, 2
				hard := f.agents[2]
				hard.data = falseRows(30, 15, 60, 2, 100)
				f.coord.start()
				f.agents[0].start()
				f.agents[1].start()
				if !joins {
					hard.start()
				}
				f.until(time.Hour, "without a lower risk", func() bool {
					all := events[round.StopProgressReported](f)
					return len(all) > 0 && all[len(all)-1].AggregationsSinceBest >= 2
				})
				models := events[aggregation.ModelReady](f)
				changed := models[len(models)-1].Version
				if joins {
					hard.start()
				} else {
					f.agents[0].stop()
					delete(f.keys, f.agents[0].id)
					if err := f.host.SetAgents(t.Context(), enrolled.NewListFromKeys(f.keys)); err != nil {
						t.Fatal(err)
					}
				}
				f.finished(10 * time.Hour)
				f.until(time.Minute, "the end", func() bool { return len(events[round.RunFinished](f)) > 0 })
				end := events[round.RunFinished](f)[0]
				if end.ModelVersion < changed+stop.RiskWindowAggregations+patience {
					t.Errorf("the members changed after model %d; the run ended with %+v", changed, end)
				}
			})
		})
	}
}
