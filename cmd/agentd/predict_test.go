package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/clitest"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// linearModel returns a model that predicts 100 + 10·(2·(a − 1)/4 + b + 0.5).
func linearModel(version wire.ModelVersion) *modelfile.Model {
	vector := wire.AppendVector(nil, []float32{2, 1, 0.5})
	m := modelfile.NewModel(&wire.Task{Name: "line", Features: []string{"a", "b"}, TargetColumn: "y",
		Standardization: wire.Standardization{Mean: []float64{1, 0, 100}, Scale: []float64{4, 1, 10}}},
		learner.Architecture{Inputs: 2, Outputs: 1, Risk: spec.LossSquared, HasBias: true}, vector,
		wire.BlobDigest(vector))
	m.Run, m.Version = 2, version
	return m
}

// folder creates the state folder of an agent that has received these models.
func folder(t *testing.T, models ...*modelfile.Model) (dir string, k *modelfile.KeptModels) {
	t.Helper()
	dir = t.TempDir()
	k, err := modelfile.OpenKeptModels(store.LocalDisk, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range models {
		if err := k.Install(m, 3, wire.ModelRef{}); err != nil {
			t.Fatal(err)
		}
	}
	return dir, k
}

// runAgentd runs a command line in a state folder.
func runAgentd(t *testing.T, dir, in string, args ...string) (out, problems string, err error) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "agentd.yaml")
	if err := os.WriteFile(config, []byte("state_dir: "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	root := rootCommand()
	root.SetArgs(append(args, "--config", config))
	root.SetIn(strings.NewReader(in))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	err = root.Execute()
	return stdout.String(), stderr.String(), err
}

func TestPredict(t *testing.T) {
	dir, _ := folder(t, linearModel(1))
	out, problems, err := runAgentd(t, dir, "\ufeffb,c,a\n1,x,3\n\n0,\"y\nz\",1\n", "predict")
	if want := "line,prediction\n2,125\n4,105\n"; out != want || problems != "" || err != nil {
		t.Errorf("%q, %q, %v; want %q", out, problems, err, want)
	}
	out, _, err = runAgentd(t, dir, "a,b\n3,1\n", "predict", "--format", "json")
	if want := `{"line":2,"prediction":125,"target":"y","model":"2/1"}` + "\n"; out != want || err != nil {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}

// TestPredictUntrained checks that a model without any training round causes a warning on stderr.
func TestPredictUntrained(t *testing.T) {
	dir, _ := folder(t, linearModel(0))
	_, problems, err := runAgentd(t, dir, "a,b\n3,1\n", "predict")
	if err != nil || !strings.Contains(problems, "is model 2/0, which was not trained in any round") {
		t.Errorf("%q, error %v", problems, err)
	}
}

// TestPredictDialect checks that rows are read in the CSV format that the data section defines, both for the agent's
// active model and for a model file.
func TestPredictDialect(t *testing.T) {
	dir, _ := folder(t, linearModel(1))
	in := "\ufeff\"A (V)\";b\r\n\"1,5\"; -0,25\r\n"
	for _, model := range []string{"", modelfile.ActiveModelPath(dir)} {
		out, problems, err := runAgentd(t, dir, in, "predict", "--set", "data.delimiter=;", "--set", "data.decimal=,",
			"--set", "data.columns=a=A (V)", "--model", model)
		if want := "line,prediction\n2,105\n"; out != want || problems != "" || err != nil {
			t.Errorf("%q, %q, %v; want %q", out, problems, err, want)
		}
	}
	t.Setenv("AGENTD_CONFIG", "/nowhere/agentd.yaml")
	root := rootCommand()
	root.SetIn(strings.NewReader("a,b\n1,0\n"))
	if code, out, problems := clitest.Run(root, "predict", "--model", modelfile.ActiveModelPath(dir)); code != 0 ||
		out != "line,prediction\n2,105\n" {
		t.Errorf("without a configuration: exit status %d, %q, %s", code, out, problems)
	}
	out, _, err := runAgentd(t, dir, "a,b\n1,0\n", "predict", "--set", "data.source=mqtt", "--set",
		"data.columns=a=topic/a")
	if want := "line,prediction\n2,105\n"; out != want || err != nil {
		t.Errorf("with readings from topics: %q, %v", out, err)
	}
}

// TestPredictClasses checks predictions of classes with a model file that was not installed by an agent.
func TestPredictClasses(t *testing.T) {
	vector := wire.AppendVector(nil, []float32{0, 1e4})
	m := modelfile.NewModel(&wire.Task{Features: []string{"a"}, TargetColumn: "y"},
		learner.Architecture{Inputs: 1, Outputs: 2, Risk: spec.LossSoftmax}, vector, wire.BlobDigest(vector))
	file, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	model, rows := filepath.Join(t.TempDir(), "m.safetensors"), filepath.Join(t.TempDir(), "rows.csv")
	for path, text := range map[string][]byte{model: file, rows: []byte("a\n1\n0\n")} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, _, err := runAgentd(t, "/nowhere", "", "predict", rows, "--model", model)
	if want := "line,prediction,p0,p1\n2,1,0,1\n3,0,0.5,0.5\n"; out != want || err != nil {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
	out, _, err = runAgentd(t, "/nowhere", "a\n1\n", "predict", "-m", model, "--format=json")
	if want := `{"line":2,"prediction":1,"probabilities":[0,1],"target":"y"}` + "\n"; out != want || err != nil {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}

// TestPredictBadRows checks that invalid rows are reported with line and column, that predictions for all other rows
// are written, and that the exit status reports the failure.
func TestPredictBadRows(t *testing.T) {
	dir, _ := folder(t, linearModel(1))
	in := "a,b\n1,0\n,0\n1,x\n1,1e39\nnan,1\n1\n1,\"0\" \n1,0\n"
	out, problems, err := runAgentd(t, dir, in, "predict")
	if want := "line,prediction\n2,105\n8,105\n9,105\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
	for _, want := range []string{
		`line 3: column "a": the value is empty, but a number is required`, `line 4: column "b": "x" is not a number`,
		`line 5: column "b": "1e39" is too large`, `line 6: column "a": "nan" is a missing value, but a number is ` +
			`required`,
		"line 7: found 1 field, but the header has 2",
	} {
		if !strings.Contains(problems, "agentd: standard input: "+want) {
			t.Errorf("no %q in\n%s", want, problems)
		}
	}
	if err == nil || err.Error() != "standard input: 5 of 8 rows have no prediction" {
		t.Error(err)
	}
}

func TestPredictRefuses(t *testing.T) {
	dir, _ := folder(t, linearModel(1))
	damaged, _ := folder(t, linearModel(1))
	path := modelfile.ActiveModelPath(damaged)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file[len(file)-1] ^= 1
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir, in, says string
		args          []string
	}{
		"a column is missing": {dir, "a,c\n1,2\n", `line 1: column "b": this column is missing; the file has the ` +
			`columns "a", "c"`, nil},
		"nothing":             {dir, "", "the first line must name the columns", nil},
		"no model":            {t.TempDir(), "a,b\n", "set predict.keep above 0", nil},
		"a damaged model":     {damaged, "a,b\n", "the file is damaged", nil},
		"another format":      {dir, "a,b\n", "--format must be csv or json", []string{"--format=xml"}},
		"a quote without end": {dir, "a,b\n1,\"" + strings.Repeat("x", 2<<20), "1 of 1 rows have no prediction", nil},
	} {
		_, _, err := runAgentd(t, c.dir, c.in, append([]string{"predict"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestPredictStreams checks that the prediction for a row is written before the next row arrives.
func TestPredictStreams(t *testing.T) {
	in, ask := io.Pipe()
	answers, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- predictRows(linearModel(1), &data.Config{}, "a pipe", in, out, io.Discard, "csv")
	}()
	write := func(text string) {
		if _, err := io.WriteString(ask, text); err != nil {
			t.Fatal(err)
		}
	}
	read := func() string {
		p := make([]byte, 100)
		n, err := answers.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		return string(p[:n])
	}
	write("a,b\n")
	if got := read(); got != "line,prediction\n" {
		t.Errorf("%q", got)
	}
	for range 3 {
		write("1,0\n")
		if got := read(); !strings.HasSuffix(got, ",105\n") {
			t.Errorf("%q", got)
		}
	}
	answers.CloseWithError(errors.New("closed"))
	write("1,0\n")
	if err := <-done; err == nil || err.Error() != "closed" {
		t.Error(err)
	}
}

// TestModelCommands checks that a rollback activates and pins an earlier model, and that the argument "newest"
// activates the newest model again and removes the pin.
func TestModelCommands(t *testing.T) {
	dir, k := folder(t, linearModel(1), linearModel(2), linearModel(4), linearModel(5))
	want := func(version wire.ModelVersion, pinned bool, lines ...string) {
		t.Helper()
		m, err := k.ActiveModel()
		if err != nil || m.Version != version || k.IsPinned() != pinned {
			t.Errorf("%+v in use, %v; pinned: %v", m, err, k.IsPinned())
		}
		out, _, err := runAgentd(t, dir, "", "model", "list")
		if err != nil || strings.Count(out, "\n") != 4 {
			t.Errorf("%s%v", out, err)
		}
		for _, line := range lines {
			if !strings.Contains(out, line) {
				t.Errorf("no %q in\n%s", line, out)
			}
		}
	}
	must := func(args ...string) {
		t.Helper()
		if _, _, err := runAgentd(t, dir, "", args...); err != nil {
			t.Error(err)
		}
	}
	want(5, false, "2       2/2    line", "  in use\n")
	must("model", "rollback")
	want(4, true, "  in use, pinned\n")
	must("model", "rollback")
	want(2, true)
	if _, _, err := runAgentd(t, dir, "", "model", "rollback"); !errors.Is(err, modelfile.ErrNoEarlierModel) {
		t.Error(err)
	}
	must("model", "use", "4")
	want(5, true)
	must("model", "use", "2")
	want(2, true)
	must("model", "use", "newest")
	want(5, false)
	for _, args := range [][]string{{"0"}, {"x"}, {"1"}, {"99"}} { // version 1 is no longer stored
		if _, _, err := runAgentd(t, dir, "", append([]string{"model", "use"}, args...)...); err == nil {
			t.Errorf("model use %s: no error", args)
		}
	}
	want(5, false)
	lock, err := store.LockStateFolder(modelfile.ModelLockDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := runAgentd(t, dir, "", "model", "rollback"); !errors.Is(err, store.ErrLocked) {
		t.Error(err)
	}
	want(5, false) // listing the models does not require the lock
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
	if _, _, err := runAgentd(t, t.TempDir(), "", "model", "list"); err == nil {
		t.Error("a folder without models: no error")
	}
}
