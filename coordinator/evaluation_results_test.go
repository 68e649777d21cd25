package coordinator_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/evaluation"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// evaluating returns a federation of six agents. Three agents are drawn per round, and five agents hold rows out for
// evaluation. The coordinator scores models on the same held-out rows, so both scores must agree.
func evaluating(t *testing.T, classes bool) *federation {
	f := newFederation(t, 6, memory.Options{})
	f.cfg.Round.Participants, f.cfg.Round.Quorum = 3, 3
	f.cfg.Round.Evaluation.VersionInterval, f.cfg.Round.Evaluation.MinRows = 2, 6
	held := "warm,wet,wind,power\n"
	for i, a := range f.agents {
		if a.cfg.TaskData.HeldOutShare = 0.3; i == 5 {
			a.cfg.TaskData.HeldOutShare = 0
			continue
		}
		lines := strings.SplitAfter(string(a.data), "\n")
		held += strings.Join(lines[1+(20+5*i)-int(0.3*float64(20+5*i)):], "")
	}
	f.held(table(held))
	if classes {
		f.bilinear()
	}
	f.cfg.Task.Model.Ridge = 0
	return f
}

// TestTooFewToEvaluate checks that agents with too few held-out rows report that they have too few.
func TestTooFewToEvaluate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := evaluating(t, false)
		f.cfg.Round.Evaluation.MinRows = 8
		f.start()
		f.finished(time.Hour)
		wait(time.Hour)
		e := events[coordinator.ModelEvaluated](f)
		if len(e) != 3 || e[0].RespondingAgents != 6 || e[0].Result.ReportingAgents != 3 ||
			e[0].Result.Rows != 9+10+12 ||
			e[0].Result.AgentRisk != nil {
			t.Errorf("evaluated %+v", e)
		}
	})
}

// scored compares an evaluation with the coordinator's score of the same model.
func (f *federation) scored(e coordinator.ModelEvaluated) error {
	for _, m := range events[aggregation.ModelReady](f) {
		if m.Version != e.Version {
			continue
		}
		r, s := e.Result, m.HeldOutScore
		if r.ReportingAgents != 5 || e.RespondingAgents != 6 || int(r.Rows) != s.Samples ||
			math.Abs(r.Risk-s.Risk) > 1e-9*s.Risk ||
			r.AgentRisk == nil {
			return fmt.Errorf("version %d: %+v, heard of %d; the coordinator's score is %+v", e.Version, r,
				e.RespondingAgents, s)
		}
		got, want := r.R2, s.R2
		if !math.IsNaN(s.Accuracy) {
			got, want = r.Accuracy, s.Accuracy
		}
		if got == nil || math.Abs(*got-want) > 1e-5 {
			return fmt.Errorf("version %d: R² or accuracy %v, want %v", e.Version, got, want)
		}
		return nil
	}
	return fmt.Errorf("version %d was never made", e.Version)
}

// TestEvaluated checks that all agents evaluate every second model and the last model on their held-out rows. The
// combined result must equal the score on all these rows together. An agent without held-out rows reports that it has
// none.
func TestEvaluated(t *testing.T) {
	for name, change := range map[string]func(f *federation){
		"numbers": func(*federation) {},
		"classes": func(*federation) {},
		"pulled": func(f *federation) { // a model that is too large for the announcement
			f.cfg.Task.Model.HiddenUnits, f.cfg.Task.Training.StepSize = []uint32{3000}, 0.01
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := evaluating(t, name == "classes")
				change(f)
				f.start()
				f.finished(time.Hour)
				wait(time.Hour)
				var versions []wire.ModelVersion
				for _, e := range events[coordinator.ModelEvaluated](f) {
					versions = append(versions, e.Version)
					if err := f.scored(e); err != nil {
						t.Error(err)
					}
				}
				if fmt.Sprint(versions) != "[2 4 5]" {
					t.Errorf("evaluated: %v; the last events:\n%s", versions, f.tail(40))
				}
				if n := len(events[evaluation.ModelEvaluated](f)); n != 15 {
					t.Errorf("%d evaluations at agents, want 15", n)
				}
			})
		})
	}
}

// TestEvaluatedKilled checks that no evaluation is lost if the coordinator, an agent or the connection is killed, and
// that the history has exactly one line for each evaluation. The result may lack the agent that was killed.
func TestEvaluatedKilled(t *testing.T) {
	for name, kill := range map[string]func(f *federation){
		"coordinator": func(f *federation) { f.coord.kill(); f.coord.again() },
		"agent":       func(f *federation) { f.agents[2].kill(); f.agents[2].again() },
		"link": func(f *federation) {
			f.broker.Disconnect(f.topics.ClientID("a3"))
			f.broker.Reconnect(f.topics.ClientID("a3"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := evaluating(t, false)
				f.start()
				for n := 1; n <= 3; n++ {
					f.until(time.Hour, "evaluated",
						func() bool { return len(events[evaluation.ModelEvaluated](f)) >= n })
					kill(f)
				}
				f.finished(time.Hour)
				wait(time.Hour)
				kill(f) // the journal has no record after the last evaluation
				wait(time.Hour)
				evaluated := events[coordinator.ModelEvaluated](f)
				if len(evaluated) < 3 || f.scored(evaluated[len(evaluated)-1]) != nil {
					t.Errorf("the last of %d: %v", len(evaluated), f.scored(evaluated[len(evaluated)-1]))
				}
				if n := len(events[evaluation.ModelEvaluated](f)); name != "agent" && n != 15 {
					t.Errorf("%d evaluations at agents, want 15: they keep what they have said", n)
				}
				f.coord.stop()
				var lines []string
				for h, err := range runs.ReadHistory(f.coord.dir) {
					if err != nil {
						t.Fatal(err)
					}
					if h.Kind == runs.KindEvaluation {
						if n := h.Evaluation.ReportingAgents; n != 5 && (name == "coordinator" || n != 4) {
							t.Errorf("version %d by %d agents", h.Version, n)
						}
						lines = append(lines, fmt.Sprint(h.Version))
					}
				}
				if got := fmt.Sprint(lines); got != "[2 4 5]" {
					t.Errorf("the history has versions %s", got)
				}
			})
		})
	}
}

// TestEvaluationOfOtherClasses checks that an evaluation for a different kind of model is ignored, while the hello that
// contains the evaluation is accepted.
func TestEvaluationOfOtherClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := evaluating(t, false)
		f.enrol("evil")
		s := newStranger(f)
		f.start()
		f.until(time.Hour, "evaluated", func() bool { return len(events[evaluation.ModelEvaluated](f)) > 0 })
		s.listen()
		h := wire.Hello{FollowedAnnouncement: s.open.Digest(), Samples: 10, Evaluation: wire.Evaluation{Run: s.open.Run,
			ModelVersion: s.ann.BaseModelVersion, Rows: 1000, CorrectRows: 1000, ConfusionMatrix: []uint32{1000}}}
		s.say(f.topics.AgentToCoordinator("evil"), sealFor(s.ann.SealPublicKey, s.as("evil", wire.TypeHello), h.Body()))
		f.until(time.Minute, "told", func() bool {
			return slices.ContainsFunc(events[coordinator.MessageDropped](f), func(d coordinator.MessageDropped) bool {
				return d.Agent == "evil" && strings.Contains(d.Err.Error(), "has metrics for a different kind of model")
			})
		})
		f.until(time.Hour, "counted", func() bool {
			return slices.ContainsFunc(events[round.AgentEligible](f),
				func(c round.AgentEligible) bool { return c.Agent == "evil" })
		})
		f.until(2*time.Hour, "evaluated", func() bool { return len(events[coordinator.ModelEvaluated](f)) > 0 })
		if e := events[coordinator.ModelEvaluated](f)[0]; e.Result.ReportingAgents != 5 ||
			e.Result.ConfusionMatrix != nil {
			t.Errorf("evaluated by %d agents: %+v", e.Result.ReportingAgents, e.Result)
		}
	})
}
