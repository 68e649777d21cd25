package coordinator_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// predicting returns a federation that rolls out its models to agents whose data files grow by one row per minute. On
// rows like the training data, each model version is better than the previous one.
func predicting(t *testing.T, rounds int) *federation {
	f := newFederation(t, 8, memory.Options{})
	f.cfg.Round.MaxAggregations, f.cfg.Task.Training.StepSize = rounds, 0.05
	f.cfg.Round.Rollout = rollout.Config{Share: "60%", FirstVersion: 1, MinDecidingAgents: 1, MinResiduals: 10,
		ErrorMargin:  0.05,
		TrialTimeout: 3 * time.Hour}
	for i, a := range f.agents {
		a.file = data.Config{CSVPath: filepath.Join(t.TempDir(), "rows.csv"), TimeColumn: "t"}
		f.grow(a, rowsOf(uint64(i), 30), 0)
		a.cfg.Predict = &predict.Config{MaxKeptModels: 1, ForecastInterval: time.Minute,
			UsualResidualShare: 0.99,
			PublishForecast:    func(predict.Forecast) error { return nil }}
	}
	return f
}

// grow appends rows to an agent's file, one minute apart, starting at row number from.
func (f *federation) grow(a *process, rows table, from int) {
	f.t.Helper()
	lines := strings.Split(strings.TrimSpace(string(rows)), "\n")
	var b strings.Builder
	if from == 0 {
		b.WriteString("t," + lines[0] + "\n")
	}
	for i, line := range lines[1:] {
		fmt.Fprintf(&b, "%d,%s\n", 60*(from+i), line)
	}
	file, err := os.OpenFile(a.file.CSVPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(f.t, err)
	_, err = file.WriteString(b.String())
	must(f.t, err)
	must(f.t, file.Close())
}

// alike returns a row like the training data. alien returns a row with a random target, on which a trained model
// performs worse.
func alike(seed uint64) table { return rowsOf(seed, 1) }

func alien(seed uint64) table {
	rng := rand.New(rand.NewPCG(seed, 9))
	line := strings.Split(strings.TrimSpace(string(rowsOf(seed, 1))), "\n")
	features := line[1][:strings.LastIndexByte(line[1], ',')]
	return table(fmt.Sprintf("%s\n%s,%.3f\n", line[0], features, 424+rng.NormFloat64()))
}

// live lets the given number of minutes pass while rows are appended to the agents' files.
func (f *federation) live(minutes int, from *int, row func(seed uint64) table) {
	for range minutes {
		*from++
		for i, a := range f.agents {
			f.grow(a, row(uint64(1000*i+*from)), 29+*from)
		}
		wait(time.Minute)
	}
}

// uses returns, for each agent, the model with which the agent predicts.
func (f *federation) uses() (all []string) {
	for _, a := range f.agents {
		k, err := modelfile.OpenKeptModels(store.LocalDisk, a.dir)
		must(f.t, err)
		m, err := k.ActiveModel()
		must(f.t, err)
		all = append(all, fmt.Sprint(m.Version))
	}
	return all
}

// ended returns the results of the finished rollouts.
func (f *federation) ended() string {
	var all []string
	for _, e := range events[round.RolloutEnded](f) {
		all = append(all, fmt.Sprintf("%d %s", e.Candidate.Version, e.Result))
	}
	return strings.Join(all, ", ")
}

// checkShares checks that before a model is released, exactly the agents in the trial share use it.
func (f *federation) checkShares() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var share wire.Rollout
	released := map[wire.ModelVersion]bool{}
	used := map[wire.AgentID]bool{} // agents that use the candidate
	for _, h := range f.log {
		switch x := h.event.(type) {
		case round.RolloutBegan:
			released[x.Released.Version] = true
			if x.Candidate != share.CandidateModel {
				share, used = wire.Rollout{CandidateModel: x.Candidate, CandidateAgentShare: 0.6},
					map[wire.AgentID]bool{}
			}
		case round.RolloutEnded:
			released[x.Released.Version] = true
			for _, a := range f.agents {
				if x.Result != rollout.FirstModelReleased && share.OffersCandidateTo(a.id) != used[a.id] {
					f.t.Errorf("%s of the share: %t; it has used version %d: %t", a.id, !used[a.id],
						x.Candidate.Version, used[a.id])
				}
			}
		case predict.ModelInUseChanged:
			used[h.who] = used[h.who] || x.Version == share.CandidateModel.Version
			its := share.OffersCandidateTo(h.who) && x.Version == share.CandidateModel.Version
			if len(released) > 0 && !released[x.Version] && !its {
				f.t.Errorf("%s uses version %d, which is neither released nor for it", h.who, x.Version)
			}
		}
	}
}

// TestRollout checks that a model that performs better in the trial share of agents is released to all agents, and a
// model that performs worse is withdrawn, even if the coordinator is killed.
func TestRollout(t *testing.T) {
	for i, tt := range []struct {
		name  string
		row   func(seed uint64) table
		kills func(event any) bool
		ended string
		uses  string
	}{
		{"better", alike, nil, "1 first, 2 widened, 4 widened", "4"},
		{"worse", alien, nil, "1 first, 2 worse, 4 worse", "1"},
		{"killed at the begin", alike, is[round.RolloutBegan], "", "4"},
		{"killed at the end", alike, is[round.RolloutEnded], "", "4"},
		{"killed at the end of a worse one", alien, is[round.RolloutEnded], "", "1"},
		{"killed when it is announced", alien, announces(), "", "1"},
	} {
		if i > 0 && testing.Short() {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := predicting(t, 4)
				killed := 0
				f.coord.moment = func(event any) {
					if tt.kills != nil && killed < 6 && tt.kills(event) {
						killed++
						f.coord.kill()
						go func() {
							wait(time.Second)
							f.coord.again()
						}()
					}
				}
				f.start()
				f.finished(time.Hour)
				from := 0
				f.live(300, &from, tt.row)
				if got := f.ended(); tt.ended != "" && got != tt.ended || tt.kills != nil && killed == 0 {
					t.Errorf("%s, want %s; killed %d times", got, tt.ended, killed)
				}
				if got := f.uses(); slices.ContainsFunc(got, func(v string) bool { return v != tt.uses }) {
					t.Errorf("agents use %v; rollouts: %s", got, f.ended())
				}
				if tt.kills == nil {
					f.checkShares()
				}
			})
		})
	}
}

func is[F any](event any) bool {
	_, ok := event.(F)
	return ok
}

// announces returns a function that is true for every fifth announcement.
func announces() func(event any) bool {
	n := 0
	return func(event any) bool {
		if strings.Contains(fmt.Sprintf("%.60v", event), "/round ") {
			n++
		}
		return n%5 == 4
	}
}

// TestRolloutGoesOn checks that a rollout continues in a new run, that a start model chosen by an operator is released
// at once, and that a model whose file was lost is replaced. If rollouts are disabled in the configuration, agents
// choose their models themselves again.
func TestRolloutGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := predicting(t, 3)
		f.cfg.KeepModels, f.cfg.KeepRuns = 2, 1
		f.start()
		f.finished(time.Hour)
		from := 0
		f.live(60, &from, alien)
		first := present(t, f).Run
		again := func(change func(*coordinator.Config), what string, want func(round.JournalRecord) bool) {
			t.Helper()
			f.coord.stop()
			change(&f.cfg)
			n := len(events[round.RunFinished](f))
			f.coord.start()
			f.until(time.Hour, "finished again", func() bool { return len(events[round.RunFinished](f)) > n })
			f.live(10, &from, alien)
			if r := present(t, f); !want(r) {
				t.Errorf("%s: run %d at version %d: %+v", what, r.Run, r.Plan.BaseModelVersion, r.Rollout)
			}
			f.cfg.NewRun, f.cfg.StartModel = false, ""
		}
		again(func(c *coordinator.Config) { c.NewRun = true }, "a new run", func(r round.JournalRecord) bool {
			return r.Run > first && r.Rollout.Released.Run == first && r.Rollout.Released.Version == 1
		})
		again(func(c *coordinator.Config) { c.NewRun = true }, "a third run", func(r round.JournalRecord) bool {
			return r.Rollout.Released.Run == first && r.Rollout.Released.Version == 1
		})
		newest := present(t, f).Run
		again(func(c *coordinator.Config) { c.StartModel = fmt.Sprintf("%d/3", newest) }, "from a model",
			func(r round.JournalRecord) bool {
				s := &r.Rollout
				return s.Released.Run == r.Run && s.Released.Version == 0 && s.Candidate.Run == r.Run
			})
		if got := f.uses(); !slices.Contains(got, "0") {
			t.Errorf("agents use %v", got)
		}
		r := present(t, f)
		again(func(*coordinator.Config) {
			must(t, os.Remove(f.coord.path("models", fmt.Sprint(r.Run), "model-00000000.safetensors")))
		}, "a lost model", func(r round.JournalRecord) bool { return r.Rollout.Released.Version == 3 })
		again(func(c *coordinator.Config) { c.Round.Rollout = rollout.DefaultConfig() }, "no rollout",
			func(r round.JournalRecord) bool { return !r.Rollout.Released.IsSet() })
	})
}
