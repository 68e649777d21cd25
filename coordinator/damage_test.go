package coordinator_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// promise is the behaviour that is expected of the coordinator if a file in the state folder is damaged.
type promise string

const (
	goesOn   promise = "the run goes on, and ends with the same model to the bit"
	older    promise = "the run goes on from an older model, and says so"
	newer    promise = "nothing is deleted, and the newer models are told of"
	undecide promise = "it does not start, and names the commands to choose from"
)

// damages lists the ways in which a file is damaged.
var damages = []struct {
	name string
	do   func(t *testing.T, path, old string)
}{
	{"deleted", func(t *testing.T, path, _ string) { must(t, os.Remove(path)) }},
	{"empty", func(t *testing.T, path, _ string) { must(t, os.Truncate(path, 0)) }},
	{"truncated", func(t *testing.T, path, _ string) {
		put(t, path, contents(t, path)[:min(len(contents(t, path))/2, 100)])
	}},
	{"one bit flipped", func(t *testing.T, path, _ string) {
		p := contents(t, path)
		at := len(p) / 2
		if ext := filepath.Ext(path); ext == ".a" || ext == ".b" {
			at = min(at, 100) // a position within the record, not in the unused space after it
		}
		p[at] ^= 4
		put(t, path, p)
	}},
	{"older copy", func(t *testing.T, path, old string) { put(t, path, contents(t, old)) }},
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	p, err := os.ReadFile(path)
	must(t, err)
	return p
}

func put(t *testing.T, path string, p []byte) {
	t.Helper()
	must(t, os.WriteFile(path, p, 0o600))
}

// stateFile is a file of the state folder with its expected behaviour when damaged.
type stateFile struct {
	pattern string // patterns of files that are damaged together
	model   string // size of the model; a "small" model is also stored in the announcement and the journal
	all     promise
	but     map[string]promise
	old     string
}

// stateFiles lists all files of the state folder as patterns. all is the expected behaviour for every kind of damage,
// and but contains exceptions. old is the folder from which an older copy of the file is taken, by default the folder
// of an earlier round.
var stateFiles = []stateFile{
	{pattern: "run.[ab]", model: "large", all: undecide, but: map[string]promise{"older copy": newer}},
	{pattern: "task.[ab]", model: "large", all: goesOn, old: "history.jsonl"},
	{pattern: "model.[ab]", model: "large", all: goesOn},
	{pattern: "history.jsonl", model: "large", all: goesOn},
	{pattern: "models/*/model-00000004.safetensors", model: "large", all: goesOn,
		old: "models/*/model-00000003.safetensors"},
	{pattern: "model.[ab] models/*/model-00000004.safetensors", model: "large", all: older,
		old: "models/*/model-00000003.safetensors"},
	{pattern: "models/*/model-00000004.safetensors", model: "small", all: goesOn,
		old: "models/*/model-00000003.safetensors"},
	{pattern: "models/*/model-00000004.record", model: "large", all: goesOn, old: "models/*/model-00000003.record"},
	{pattern: "models/*/model-00000004.record", model: "small", all: goesOn, old: "models/*/model-00000003.record"},
	{pattern: "spool/*/*.log", model: "large", all: goesOn, old: "history.jsonl"},
}

// TestDamagedFolder damages every file of the state folder in every way during a round.
func TestDamagedFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("some hundred starts, each with its fsyncs")
	}
	undisturbed := map[string]wire.Digest{}
	for _, model := range []string{"small", "large"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFederation(t, 2, memory.Options{})
			shape(f, model)
			f.start()
			undisturbed[model] = f.finished(time.Hour)
		})
	}
	for _, file := range stateFiles {
		for _, damage := range damages {
			want := file.all
			if p, ok := file.but[damage.name]; ok {
				want = p
			}
			t.Run(fmt.Sprintf("%s %s %s", file.model, strings.ReplaceAll(file.pattern, "/", "|"), damage.name),
				func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f, early := interrupted(t, file.model)
						damageAll(t, f, early, file, damage.do)
						keep(t, f, want, undisturbed[file.model])
					})
				})
		}
	}
}

// damageAll damages all files that match a pattern, including both slots.
func damageAll(t *testing.T, f *federation, early string, file stateFile, damage func(t *testing.T, path, old string)) {
	t.Helper()
	for _, pattern := range strings.Fields(file.pattern) {
		found, err := filepath.Glob(f.coord.path(pattern))
		if err != nil || len(found) == 0 || len(found) > 2 {
			t.Fatalf("%s fits %v, %v", pattern, found, err)
		}
		for _, path := range found {
			old := filepath.Join(early, strings.TrimPrefix(path, f.coord.dir))
			if file.old != "" {
				old = one(t, f.coord.path(file.old))
			}
			damage(t, path, old)
		}
	}
}

// shape configures a task whose model is either small enough for the announcement or too large.
func shape(f *federation, model string) {
	f.cfg.Round.MaxAggregations = 6
	if model == "large" {
		f.cfg.Task.Model.HiddenUnits = []uint32{4000}
		f.cfg.Task.Training.MaxLocalSteps = 3
	}
}

// putJournal restores the journal of an earlier folder.
func putJournal(t *testing.T, f *federation, early string) {
	t.Helper()
	for _, name := range []string{"run.a", "run.b"} {
		put(t, f.coord.path(name), contents(t, filepath.Join(early, name)))
	}
}

// one returns the only file that matches a pattern.
func one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s fits %v, %v; want one file", pattern, found, err)
	}
	return found[0]
}

// interrupted runs a federation and kills its coordinator once a round has received an update. It also returns a copy
// of the folder from an earlier round.
func interrupted(t *testing.T, model string) (f *federation, early string) {
	f = newFederation(t, 2, memory.Options{})
	shape(f, model)
	killed := make(chan bool, 1)
	f.coord.moment = func(m any) {
		switch m := m.(type) {
		case round.RoundClosed:
			if m.NewModelVersion == 2 {
				early = f.coord.frozen()
			}
		case round.UpdateAccepted:
			if m.Round == 6 { // one statistics round, four training rounds, and the current one
				f.coord.moment = nil
				f.coord.kill()
				killed <- true
			}
		}
	}
	f.start()
	<-killed
	<-f.coord.life.done
	return f, early
}

// keep starts the coordinator and checks that it behaves as expected with the damaged file.
func keep(t *testing.T, f *federation, want promise, undisturbed wire.Digest) {
	t.Helper()
	before := modelFiles(t, f)
	if want == undecide {
		undecided(t, f)
		return
	}
	f.coord.start()
	if want == newer {
		f.until(time.Minute, "told of newer models",
			func() bool { return len(events[aggregation.ModelsNewerThanJournal](f)) == 1 })
		if why := f.coord.behind(time.Minute); why.NewestPosition.Round != 6 { // position of the retained announcement
			t.Error(why)
		}
		_, err := runs.RaiseEpoch(f.coord.dir)
		must(t, err)
		f.coord.start()
		f.finished(time.Hour)
	} else if hash := f.finished(time.Hour); want == goesOn && hash != undisturbed {
		t.Errorf("the last model is %x, want %x as without damage", hash[:4], undisturbed[:4])
	}
	mended := events[aggregation.StateFileRecovered](f)
	if fell := len(mended) > 0 && mended[0].Version < mended[0].PreviousVersion; fell != (want == older) ||
		len(mended) > 1 {
		t.Errorf("told: %+v; want that %s", mended, want)
	}
	after := modelFiles(t, f)
	for content, name := range before {
		if after[content] == "" && want != goesOn {
			t.Errorf("the content of %s is gone: there are %v", name, after)
		}
	}
}

// modelFiles returns the names of the model files by their content.
func modelFiles(t *testing.T, f *federation) map[string]string {
	t.Helper()
	found, err := filepath.Glob(f.coord.path("models", "*", "*.safetensors"))
	must(t, err)
	all := map[string]string{}
	for _, path := range found {
		all[string(contents(t, path))] = filepath.Base(path)
	}
	return all
}

// undecided checks that the coordinator refuses to start, and that the commands suggested in its error message work.
func undecided(t *testing.T, f *federation) {
	t.Helper()
	var state *runs.StateError
	err := begin(t, f)
	if !errors.As(err, &state) || !strings.Contains(state.Remedy, "coordinator run --new-run") {
		t.Fatalf("%v, want a StateError with the commands to choose from", err)
	}
	_, from, found := strings.Cut(state.Remedy, "coordinator run --from ")
	from, _, _ = strings.Cut(from, "`")
	if !found || !strings.HasSuffix(from, "/4") {
		t.Fatalf("%v; want it to offer the newest model", err)
	}
	f.cfg.StartModel = from
	f.coord.start()
	f.finished(time.Hour)
	if n := len(events[aggregation.StatisticsReady](f, wire.CoordinatorID)); n != 1 {
		t.Errorf("%d statistics rounds, want only the first run's", n)
	}
}

// begin returns the error of starting a coordinator.
func begin(t *testing.T, f *federation) error {
	t.Helper()
	cfg := f.cfg
	cfg.StateDir, cfg.Observer = f.coord.dir, observer(func(observe.Event) {})
	conn := f.broker.Connect("late", nil)
	defer conn.Close()
	_, err := coordinator.New(cfg, conn)
	return err
}

// wide adds columns with long names, which make the task too large for the journal.
func wide(f *federation, columns int) {
	var names []string
	for i := range columns {
		names = append(names, fmt.Sprintf("%s_%03d", strings.Repeat("x", 100), i))
	}
	f.cfg.Task.Features = append(f.cfg.Task.Features, names...)
	for k, a := range f.agents {
		lines := strings.Split(strings.TrimSpace(string(a.data)), "\n")
		for n := range lines {
			for i, name := range names {
				if n > 0 {
					name = fmt.Sprint((n*(i+3) + k) % 17)
				}
				lines[n] += "," + name
			}
		}
		a.data = table(strings.Join(lines, "\n") + "\n")
	}
}

// TestLargeTaskIsMadeAgain checks that a task which is too large for the journal is rebuilt from the configuration and
// a model file. With another configuration this is impossible.
func TestLargeTaskIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		wide(f, 90)
		f.cfg.Round.MaxAggregations = 2
		f.start()
		f.finished(time.Hour)
		f.coord.stop()
		if _, r, err := runs.OpenModelsOfCurrentRun(f.coord.dir); err != nil || r.Plan.Task.Inline != nil {
			t.Fatalf("%v; the task of %d bytes is in the journal", err, r.Plan.Task.Length)
		}
		must(t, os.Remove(f.coord.path("task.a")))
		must(t, os.Remove(f.coord.path("task.b")))
		good := f.cfg
		f.cfg.Task.Training.BatchSize++
		var state *runs.StateError
		if err := begin(t, f); !errors.As(err, &state) ||
			!strings.Contains(err.Error(), "restore the file, or the configuration with which the run began") {
			t.Errorf("with another configuration: %v", err)
		}
		f.cfg = good
		f.cfg.Round.MaxAggregations = 3
		f.coord.start()
		f.until(time.Hour, "finished again", func() bool { return len(events[round.RunFinished](f)) == 2 })
		if mended := events[aggregation.StateFileRecovered](f); len(mended) != 1 ||
			mended[0].File != aggregation.StateTask {
			t.Errorf("told: %+v", mended)
		}
	})
}

// TestNoOlderModel checks that with an older journal whose model was pruned, the run continues from a newer model.
// Without any intact model an operator must choose.
func TestNoOlderModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, early := interrupted(t, "large")
		putJournal(t, f, early)
		for _, v := range []string{"0", "1", "2"} {
			must(t, os.Remove(one(t, f.coord.path("models", "*", "model-0000000"+v+".safetensors"))))
		}
		f.broker = memory.New(memory.Options{}) // a new broker that has no messages of this run
		f.coord.start()
		synctest.Wait()
		if mended := events[aggregation.StateFileRecovered](f); len(mended) != 1 || mended[0].PreviousVersion != 1 ||
			mended[0].Version != 4 {
			t.Errorf("told: %+v, want that the run goes on from version 4", mended)
		}
		f.coord.stop()
		putJournal(t, f, early)
		damaged := one(t, f.coord.path("models", "*", "model-00000004.safetensors"))
		put(t, damaged, []byte("rubbish"))
		must(t, os.Remove(one(t, f.coord.path("models", "*", "model-00000003.record"))))
		var state *runs.StateError
		if err := begin(t, f); !errors.As(err, &state) ||
			!strings.Contains(err.Error(), "the run has no other intact model") ||
			strings.Contains(state.Remedy, "--from") {
			t.Errorf("without a sound model: %v", err)
		}
		if string(contents(t, damaged)) != "rubbish" {
			t.Error("a damaged model was changed by a start that failed")
		}
	})
}

// TestNewerModelsAreRenamed checks that a model which a newer journal left behind is renamed when the run stores
// another model with the same version.
func TestNewerModelsAreRenamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, early := interrupted(t, "small")
		for _, a := range f.agents {
			a.stop()
			a.dir = t.TempDir() // an empty state folder
		}
		f.broker = memory.New(memory.Options{})
		f.agents[0].data = rowsOf(9, 30) // different data, so that all models differ
		putJournal(t, f, early)
		before := modelFiles(t, f)
		f.start()
		f.until(time.Hour, "finished", func() bool { return len(events[round.RunFinished](f)) == 1 })
		after := modelFiles(t, f)
		renamed := 0
		for content, name := range before {
			switch after[content] {
			case name:
			case strings.Replace(name, ".safetensors", ".aside-1.safetensors", 1):
				renamed++
			default:
				t.Errorf("%s is now %q", name, after[content])
			}
		}
		if renamed != 3 { // versions 2, 3 and 4; the journal is at version 1
			t.Errorf("%d models were renamed, want 3: %v", renamed, after)
		}
	})
}
