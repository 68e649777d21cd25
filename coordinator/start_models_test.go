package coordinator_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// trained returns a federation whose run is finished and whose coordinator is stopped, and the id of the run.
func trained(t *testing.T, rounds int) (*federation, wire.RunID) {
	t.Helper()
	f := newFederation(t, 2, memory.Options{})
	f.cfg.Round.MaxAggregations = rounds
	f.start()
	f.finished(time.Hour)
	f.coord.stop()
	return f, present(t, f).Run
}

// present returns the journal record of the current run.
func present(t *testing.T, f *federation) round.JournalRecord {
	t.Helper()
	_, record, err := runs.OpenModelsOfCurrentRun(f.coord.dir)
	must(t, err)
	return record
}

// runs returns the ids of the stored runs.
func (f *federation) runs() (all []wire.RunID) {
	f.t.Helper()
	runs, err := runs.ListStoredRuns(f.coord.dir)
	must(f.t, err)
	for _, r := range runs {
		all = append(all, r.Run)
	}
	return all
}

// model returns the digest, the metadata and the file of a stored model.
func model(t *testing.T, f *federation, run wire.RunID, version uint64) (store.ModelInfo, []byte) {
	t.Helper()
	models, err := runs.OpenModelsOfRun(f.coord.dir, run)
	must(t, err)
	list, err := models.List()
	must(t, err)
	for _, m := range list {
		if m.Version == version {
			file, err := models.Get(version)
			must(t, err)
			return m, file
		}
	}
	t.Fatalf("no model %d/%d", run, version)
	return store.ModelInfo{}, nil
}

// TestFrom checks that a new run begins with the given model and its standardisation, without a statistics round. A
// restart with the same flag continues the run.
func TestFrom(t *testing.T) {
	for _, tt := range []struct{ name, from, source string }{
		{"version of the newest run", "2", "RUN/2"}, {"run and version", "RUN/2", "RUN/2"}, {"file", "FILE", "FILE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, first := trained(t, 3)
				origin, file := model(t, f, first, 2)
				path := filepath.Join(t.TempDir(), "exported.safetensors")
				put(t, path, file)
				named := strings.NewReplacer("RUN", strconv.FormatUint(uint64(first), 10), "FILE", path)

				f.cfg.StartModel, f.cfg.Round.MaxAggregations, f.cfg.Task.Training.BatchSize = named.Replace(tt.from),
					2, 5
				f.coord.start()
				f.until(time.Hour, "finished again", func() bool { return len(events[round.RunFinished](f)) == 2 })
				f.coord.stop()
				second := present(t, f).Run
				if second <= first {
					t.Fatalf("run %d after run %d", second, first)
				}
				w0, _ := model(t, f, second, 0)
				if w0.Digest != origin.Digest || w0.Metadata["from"] != named.Replace(tt.source) ||
					w0.Metadata["mean"] != origin.Metadata["mean"] {
					t.Errorf("the run begins with %x, %v; want %x of %s", w0.Digest[:4], w0.Metadata, origin.Digest[:4],
						named.Replace(tt.source))
				}
				if n := len(events[aggregation.StatisticsReady](f)); n != 1 {
					t.Errorf("%d statistics rounds, want only the first run's", n)
				}

				if tt.from == "FILE" {
					must(t, os.Remove(path)) // the new run must not need the file any more
				}
				f.cfg.Round.MaxAggregations = 3
				f.coord.start()
				f.until(time.Hour, "finished once more", func() bool { return len(events[round.RunFinished](f)) == 3 })
				f.coord.stop()
				if r := present(t, f); r.Run != second || r.Plan.BaseModelVersion != 3 {
					t.Errorf("run %d stands at %d; the same --from again wants run %d to go on to 3", r.Run,
						r.Plan.BaseModelVersion, second)
				}
				f.cfg.StartModel = modelText(first, 2) // another name of the same model
				must(t, begin(t, f))
				if r := present(t, f); r.Run != second {
					t.Errorf("the same model under another name begins run %d", r.Run)
				}
				f.cfg.NewRun = true
				must(t, begin(t, f))
				if runs, err := runs.ListStoredRuns(f.coord.dir); err != nil || len(runs) != 3 {
					t.Errorf("%v, %v; want a third run of --new-run beside --from", runs, err)
				}
			})
		})
	}
}

func modelText(run wire.RunID, version int) string { return fmt.Sprintf("%d/%d", run, version) }

// TestInitial checks that each new run of a task with an initial model begins with that model, while an unfinished run
// continues. A model file that does not fit the task is rejected, and the error names the setting.
func TestInitial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, first := trained(t, 2)
		origin, file := model(t, f, first, 2)
		path := filepath.Join(t.TempDir(), "given.safetensors")
		put(t, path, file)
		f.cfg.InitialModelPath = path
		must(t, begin(t, f))
		if r := present(t, f); r.Run != first || r.Plan.BaseModelVersion != 2 {
			t.Errorf("run %d stands at %d; the run before the key was set goes on", r.Run, r.Plan.BaseModelVersion)
		}
		f.cfg.NewRun = true
		for range 2 {
			must(t, begin(t, f))
			run := present(t, f).Run
			w0, _ := model(t, f, run, 0)
			if run == first || w0.Digest != origin.Digest || w0.Metadata["from"] != path ||
				w0.Metadata["mean"] != origin.Metadata["mean"] {
				t.Errorf("run %d begins with %x, %v; want %x of %s", run, w0.Digest[:4], w0.Metadata, origin.Digest[:4],
					path)
			}
			first = run
		}
		put(t, path, []byte("damaged"))
		var refused *runs.StateError
		if err := begin(t, f); !errors.As(err, &refused) || refused.Path != "task.model.initial: "+path {
			t.Errorf("%v; want a refusal of the key", err)
		}
	})
}

// TestFromRefused checks that a model which does not fit the task is rejected with a reason, and that the folder is not
// changed.
func TestFromRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, run := trained(t, 1)
		_, file := model(t, f, run, 1)
		dir := t.TempDir()
		write := func(name string, edit func(tensors []store.Tensor, meta map[string]string) []store.Tensor) string {
			tensors, meta, err := store.DecodeSafetensors(file)
			must(t, err)
			out, err := store.EncodeSafetensors(edit(tensors, meta), meta)
			must(t, err)
			path := filepath.Join(dir, name)
			put(t, path, out)
			return path
		}
		bare := write("bare", func(all []store.Tensor,
			meta map[string]string) []store.Tensor {
			clear(meta)
			return all
		})
		later := write("later", func(all []store.Tensor, meta map[string]string) []store.Tensor {
			meta["format_version"] = "9"
			return all
		})
		fewer := write("fewer", func(all []store.Tensor, _ map[string]string) []store.Tensor { return all[:1] })
		pooled := write("pooled", func(all []store.Tensor, meta map[string]string) []store.Tensor {
			meta["pool"] = "2"
			return all
		})
		torn := filepath.Join(dir, "torn")
		put(t, torn, file[:len(file)-1])
		good := f.cfg
		for _, tt := range []struct {
			name, from, says string
			change           func()
		}{
			{"no such version", "7", "no such model", func() {}},
			{"no such run", "12/1", "no models found for run 12", func() {}},
			{"no such file", filepath.Join(dir, "none"), "no such file", func() {}},
			{"torn file", torn, "safetensors", func() {}},
			{"other tensors", fewer, "the model has the tensors", func() {}},
			{"later format", later, "this program reads version 1", func() {}},
			{"other features", "1", `made with features ["warm","wet","wind"]`,
				func() { f.cfg.Task.Features = []string{"wet", "warm", "wind"} }},
			{"other target", "1", "made with target power", func() { f.cfg.Task.TargetColumn = "cloud" }},
			{"other risk", "1", "made with risk squared", func() { f.cfg.Task.Model.Risk = spec.LossLogistic }},
			{"other layout", "1", "the model has the tensors", func() { f.cfg.Task.Model.HiddenUnits = []uint32{4} }},
			{"other pool", pooled, "made with pool 2", func() {
				f.cfg.Task.Model.Kind, f.cfg.Task.Model.Convolution = spec.ModelConv1D,
					wire.ConvolutionLayers{InputChannels: 1,
						KernelSteps: 1, PoolSteps: 3, FiltersPerLayer: []uint32{1}}
			}},
			{"standardised model, raw task", "1", "task.standardize is false", func() { f.cfg.Standardize = false }},
			{"raw model, standardised task", bare, "contains no column means and scales", func() {}},
		} {
			f.cfg = good
			f.cfg.StartModel = tt.from
			tt.change()
			var state *runs.StateError
			if err := begin(t, f); !errors.As(err, &state) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v, want a StateError with %q", tt.name, err, tt.says)
			}
			if r := present(t, f); r.Run != run {
				t.Errorf("%s: run %d has begun", tt.name, r.Run)
			}
		}
		f.cfg = good
		f.cfg.StartModel, f.cfg.Standardize = bare, false
		must(t, begin(t, f)) // tensors of another program, for a task in raw units
	})
}

// TestKeepRuns checks that the models of the newest keep_runs runs with a trained model are kept. Runs without a
// trained model are not counted.
func TestKeepRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, first := trained(t, 2)
		f.cfg.KeepRuns = 2
		runs := []wire.RunID{first}
		for i := range 3 {
			f.cfg.NewRun = true
			f.coord.start()
			f.until(time.Hour, "finished again", func() bool { return len(events[round.RunFinished](f)) == i+2 })
			f.coord.stop()
			runs = append(runs, present(t, f).Run)
		}
		want := func(want ...wire.RunID) {
			t.Helper()
			if got := f.runs(); !slices.Equal(got, want) {
				t.Errorf("runs %v; want %v", got, want)
			}
		}
		want(runs[1:]...)
		f.cfg.Standardize = false
		for range 4 { // a restart loop with --new-run, whose runs train no model
			wait(time.Second)
			must(t, begin(t, f))
		}
		left := f.runs()
		if len(left) != 3 || left[0] != runs[2] || left[1] != runs[3] {
			t.Errorf("runs %v, want %v and the newest", left, runs[2:])
		}
	})
}

// TestFromAfterTakeOver checks that agents follow a run that was started from a model after a journal with a raised
// epoch was lost. The first process with the start-model flag may end before it has read the retained announcement.
func TestFromAfterTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		f.cfg.Round.MaxAggregations, f.cfg.RaiseEpoch = 2, true
		f.start()
		f.finished(time.Hour)
		f.coord.stop()
		must(t, os.Remove(f.coord.path("run.a")))
		must(t, os.Remove(f.coord.path("run.b")))
		f.cfg.RaiseEpoch, f.cfg.StartModel = false, "2"
		must(t, begin(t, f))
		f.coord.start()
		f.until(time.Hour, "finished again", func() bool { return len(events[round.RunFinished](f)) == 2 })
	})
}
