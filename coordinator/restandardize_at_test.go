package coordinator_test

import (
	"math"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// refreshing returns a federation that two agents with distant data join after the first statistics round.
func refreshing(t *testing.T) *federation {
	f := newFederation(t, 3, memory.Options{})
	f.cfg.Round.MaxAggregations, f.cfg.RestandardizeVersions = 5, []int{2, 5}
	f.cfg.Round.Gather.TargetAgents, f.cfg.FeatureClipDeviations = 0, 0
	f.cfg.Round.PauseBetweenRounds = 3 * time.Second // lets the late agents receive the key and send a hello
	for i := range 2 {
		p := f.enrol(wire.AgentID("late" + strconv.Itoa(i)))
		p.data = rowsOf(uint64(30+i), 40)
		p.cfg.Training.DeclaredStepTime = 100 * time.Millisecond
		f.agents = append(f.agents, p)
	}
	f.cfg.Round.Participants = 5
	return f
}

// join starts the two late agents after the first model is ready.
func (f *federation) join() {
	f.t.Helper()
	f.coord.start()
	for _, a := range f.agents[:3] {
		a.start()
	}
	f.until(time.Hour, "a model", func() bool { return len(events[aggregation.ModelReady](f)) > 0 })
	for _, a := range f.agents[3:] {
		a.start()
	}
}

// TestStandardizeAt checks a statistics round after model version 2. Version 3 must have a new standardisation and the
// same predictions as version 2. The run continues to its end, after which there is no further statistics round.
func TestStandardizeAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := refreshing(t)
		f.cfg.Round.ServerOptimizer.Name = "fedavgm"
		f.held(rowsOf(99, 50))
		f.join()
		f.finished(2 * time.Hour)
		f.coord.stop()
		r := present(t, f)
		old, before := model(t, f, r.Run, 2)
		info, after := model(t, f, r.Run, 3)
		if r.Plan.BaseModelVersion != 5 || info.Metadata["mean"] == old.Metadata["mean"] {
			t.Fatalf("version %d; the columns of version 3: %v", r.Plan.BaseModelVersion, info.Metadata)
		}
		for _, row := range [][]float64{{15, 60, 2}, {0, 0, 0}, {35, 20, 5}} {
			if got, want := predicted(t, after, row...), predicted(t, before, row...); math.Abs(got-want) > 1e-6*1000 {
				t.Errorf("%v: %v, before %v", row, got, want)
			}
		}
		if s := events[aggregation.StatisticsReady](f); len(s) != 2 || s[0].Rows != 20+25+30 ||
			s[1].Rows != 20+25+30+40+40 {
			t.Errorf("statistics: %+v", s)
		}
		var all []string
		for _, c := range events[round.RoundClosed](f) {
			all = append(all, c.Kind.String()[:1]+strconv.Itoa(int(c.NewModelVersion)))
		}
		if got, want := strings.Join(all, " "), "s0 t1 t2 s3 t4 t5"; got != want {
			t.Errorf("rounds %s, want %s", got, want)
		}
		models := events[aggregation.ModelReady](f)
		if first, last := models[0].HeldOutScore, models[len(models)-1].HeldOutScore; !(last.Risk < first.Risk) {
			t.Errorf("held-out risk from %v to %v", first.Risk, last.Risk)
		}
		if a, b := r.Plan.LocalStepOffset, uint64(4*f.cfg.Task.Training.MaxLocalSteps); a != b {
			t.Errorf("the schedule is at %d, want %d", a, b)
		}
	})
}

// refreshRun runs a federation with a second statistics round and kills the coordinator at its n-th step (event or
// message) after version 2. It returns the last model, and false if the run ended before that step.
func refreshRun(t *testing.T, n int) (hash wire.Digest, killed bool) {
	synctest.Test(t, func(t *testing.T) {
		f := refreshing(t)
		var gate sync.Mutex
		within := false
		dead := make(chan struct{}, 1)
		f.coord.moment = func(m any) {
			gate.Lock()
			defer gate.Unlock()
			if ready, is := m.(aggregation.ModelReady); is && ready.Version == 2 {
				within = true
			}
			if within {
				if n--; n == 0 {
					f.coord.kill()
					dead <- struct{}{}
				}
			}
		}
		f.join()
		over := make(chan struct{})
		go func() {
			defer close(over)
			select {
			case <-dead:
				killed = true
				wait(2 * time.Second)
				f.coord.again()
			case <-time.After(time.Hour):
			}
		}()
		hash = f.finished(4 * time.Hour)
		<-over
		f.coord.stop()
		if r := present(t, f); r.Plan.BaseModelVersion != 5 {
			t.Errorf("killed at moment %d: version %d", n, r.Plan.BaseModelVersion)
		}
		if left := events[round.RoundAbandoned](f); len(left) > 0 {
			t.Errorf("abandoned: %+v", left)
		}
		gate.Lock()
		n = 0
		gate.Unlock()
	})
	return hash, killed
}

// TestStandardizeAtAndCrash checks that the run ends with the same model if the coordinator is killed at every third
// step around the statistics round.
func TestStandardizeAtAndCrash(t *testing.T) {
	want, _ := refreshRun(t, 0)
	n := 1
	for ; n < 300; n++ {
		got, killed := refreshRun(t, n)
		if !killed {
			break
		}
		if got != want {
			t.Errorf("killed at moment %d after version 2: model %x, want %x", n, got[:4], want[:4])
		}
		if n += 2; testing.Short() {
			n += 21
		}
	}
	if n < 30 {
		t.Errorf("%d moments", n)
	}
}

// archived waits until a file that another goroutine writes exists.
func archived(t *testing.T, pattern string) {
	for {
		found, err := filepath.Glob(pattern)
		must(t, err)
		if len(found) > 0 {
			return
		}
		runtime.Gosched()
	}
}

// TestStandardizeAtDamage checks that the statistics round succeeds if at least one copy of the model is intact, and
// that the coordinator requires a decision by the operator if no copy is intact.
func TestStandardizeAtDamage(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		ends  bool
	}{
		"slots":   {[]string{"model.a", "model.b"}, true},
		"archive": {[]string{"models/*/model-00000002.safetensors"}, true},
		"both":    {[]string{"model.a", "model.b", "models/*/model-00000002.safetensors"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := refreshing(t)
				dead := make(chan struct{})
				opened := 0
				f.coord.moment = func(m any) {
					if o, is := m.(round.RoundOpened); is && o.Kind == wire.KindStatistics {
						if opened++; opened == 2 {
							f.coord.moment = nil
							archived(t, f.coord.path("models", "*", "model-00000002.safetensors"))
							f.coord.kill()
							close(dead)
						}
					}
				}
				f.join()
				<-dead
				<-f.coord.life.done
				for _, pattern := range c.files {
					found, err := filepath.Glob(f.coord.path(pattern))
					must(t, err)
					for _, path := range found {
						put(t, path, []byte("rubbish"))
					}
				}
				if !c.ends {
					if err := begin(t, f); err == nil || !strings.Contains(err.Error(), "of the run is missing or "+
						"damaged") {
						t.Errorf("error %v", err)
					}
					return
				}
				f.coord.again()
				f.finished(4 * time.Hour)
				f.coord.stop()
				if r, left := present(t, f),
					events[round.RoundAbandoned](f); r.Plan.BaseModelVersion != 5 || len(left) > 0 {
					t.Errorf("version %d, abandoned: %+v", r.Plan.BaseModelVersion, left)
				}
			})
		})
	}
}
