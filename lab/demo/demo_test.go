package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is the timeout of each wait.
const patience = 2 * time.Minute

// inTemp makes a temporary folder of the test the folder for temporary files (TMPDIR), and returns its path.
func inTemp(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return dir
}

func runJSON(t *testing.T, o Options) (*Result, []map[string]any) {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole demonstration is not short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var out, errs bytes.Buffer
	o.JSON, o.Stdout, o.Stderr = true, &out, &errs
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, &errs)
	}
	if errs.Len() > 0 {
		t.Errorf("on stderr:\n%s", &errs)
	}
	var events []map[string]any
	for line := range strings.Lines(out.String()) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		events = append(events, e)
	}
	return r, events
}

// TestBrokerKnowsItsUsers checks that other programs on the machine can connect to the port of the embedded broker, but
// that the broker refuses them without a password.
func TestBrokerKnowsItsUsers(t *testing.T) {
	dir := t.TempDir()
	fed, err := layOut(Options{Seed: 1, Rounds: 1, Participants: 1, Model: "linear"}, dir,
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer fed.server.Close()
	good, _, err := fed.coordinator.Broker.SessionOptions("demo-coordinator")
	if err != nil {
		t.Fatal(err)
	}
	good.RenewCredentials = nil // disable the renewal, which would restore the right password
	wrong, none, climbing := good, good, good
	wrong.Password += "?"
	none.Username, none.Password = "", ""
	climbing.ClientID, climbing.Username = "../demo-coordinator", "../demo-coordinator"
	for name, o := range map[string]mqtt.Options{"wrong": wrong, "none": none, "climbing": climbing} {
		failure, s := acltest.Attempt(t, o)
		if s != nil {
			_ = s.Close()
		}
		if !strings.Contains(failure, "not Authorized") {
			t.Errorf("%s: %q", name, failure)
		}
	}
	if failure, s := acltest.Attempt(t, good); s == nil {
		t.Errorf("the coordinator: %s", failure)
	} else {
		_ = s.Close()
	}
}

func TestBaselines(t *testing.T) {
	f, err := writeData(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(f.stations) != stations || !slices.IsSorted(f.stations) {
		t.Errorf("stations %v, want %d in order", f.stations, stations)
	}
	b, err := baselines(f)
	if err != nil {
		t.Fatal(err)
	}
	r := newResult(b, &progress{R2: 0.6, Round: 50})
	for name, x := range map[string][2]float64{
		"persistence": {r.Persistence, promised(t, "persistence")}, "central": {r.Central, promised(t, "centralised")},
		"alone, mean":  {r.AloneMean, promised(t, "each station trains alone: mean of the twelve stations")},
		"alone, worst": {r.AloneWorst, -0.247},
	} {
		if !(math.Abs(x[0]-x[1]) <= 0.001) {
			t.Errorf("R² %s is %.5f, want %v ± 0.001", name, x[0], x[1])
		}
	}
	if r.rows != 7603 || r.Federated != 0.6 || r.Rounds != 50 {
		t.Errorf("result %+v", r)
	}
}

func TestRun(t *testing.T) {
	temp := inTemp(t)
	o := Defaults()
	o.Rounds, o.Out = 12, filepath.Join(t.TempDir(), "new", "out")
	r, events := runJSON(t, o)
	if r.Federated < 0.60 {
		t.Errorf("R² %.4f, want 0.60 or more", r.Federated)
	}
	checkEvents(t, events, 12)
	checkOut(t, o.Out, r, 13) // 12 training rounds and the statistics round give 13 lines
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

func checkEvents(t *testing.T, events []map[string]any, rounds int) {
	t.Helper()
	if len(events) != rounds+3 || events[0]["event"] != "start" || events[1]["event"] != "standardised" ||
		events[1]["rows"] != 7603.0 {
		t.Fatalf("%d events, the first %v and %v", len(events), events[0], events[1])
	}
	drawn := map[string]bool{}
	for i, e := range events[2 : rounds+2] {
		names, _ := e["participants"].([]any)
		steps, _ := e["local_steps"].(map[string]any)
		if e["event"] != "round" || e["round"] != float64(i+1) || len(names) != 6 || len(steps) != 6 {
			t.Errorf("event %v", e)
		}
		for _, name := range names {
			name := name.(string)
			drawn[name] = true
			if n, _ := steps[name].(float64); n < 4 || n > 32 {
				t.Errorf("round %d: %s took %v local steps", i+1, name, n)
			}
		}
	}
	if len(drawn) < 10 {
		t.Errorf("in %d rounds only %v were drawn", rounds, drawn)
	}
	last := events[len(events)-1]
	for _, key := range []string{"task", "rounds", "federated", "alone_mean", "alone_worst", "central", "persistence",
		"seconds", "model"} {
		if last[key] == nil {
			t.Errorf("no %s in the result %v", key, last)
		}
	}
	if last["event"] != "result" || last["task"] != "air" || last["rounds"] != float64(rounds) {
		t.Errorf("result %v", last)
	}
}

func checkOut(t *testing.T, dir string, r *Result, lines int) {
	t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	tensors, meta, err := store.DecodeSafetensors(read("model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if len(tensors) == 0 || meta["task"] != "air" || meta["target"] != airTarget {
		t.Errorf("%d tensors, metadata %v", len(tensors), meta)
	}
	if n := bytes.Count(read("history.jsonl"), []byte("\n")); n != lines {
		t.Errorf("%d lines of history, want %d", n, lines)
	}
	var kept Result
	if err := json.Unmarshal(read("result.json"), &kept); err != nil || kept.Model != r.Model ||
		kept.Federated != r.Federated {
		t.Errorf("result.json holds %+v, error %v; want %+v", kept, err, r)
	}
}

// TestRunInFull checks that the demo reaches the result that README.md promises for `make demo`.
func TestRunInFull(t *testing.T) {
	r, events := runJSON(t, Defaults())
	if want := promised(t, "federated: 50 rounds"); !(math.Abs(r.Federated-want) <= 0.001) || r.Rounds != 50 {
		t.Errorf("R² %.4f after %d rounds; README.md promises %.3f after 50", r.Federated, r.Rounds, want)
	}
	checkEvents(t, events, 50)
}

// promised returns the number from the table row in README.md that begins with the given text.
func promised(t *testing.T, line string) float64 {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\| \**` + line + `[^|]*\| \**(-?[0-9.]+)`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("README.md promises nothing of %q", line)
	}
	x, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestRunMLP(t *testing.T) {
	o := Defaults()
	o.Model, o.Rounds = "mlp", 5
	if r, _ := runJSON(t, o); r.Federated < 0.45 {
		t.Errorf("R² %.4f after 5 rounds, want 0.45 or more", r.Federated)
	}
}

func TestMetrics(t *testing.T) {
	inTemp(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out started
	var page string
	out.text = "round   1/50"
	out.tell = func() {
		defer stop()
		_, url, _ := strings.Cut(out.written.String(), "metrics: ")
		url, _, _ = strings.Cut(url, "\n")
		r, err := http.Get(url)
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		page = string(body)
		http.DefaultClient.CloseIdleConnections()
	}
	o := Defaults()
	o.Metrics, o.Stdout, o.Stderr = "127.0.0.1:0", &out, io.Discard
	if _, err := Run(ctx, o); err == nil {
		t.Error("the demo was not stopped")
	}
	for _, want := range []string{`^coordinator_model_version [1-9]`, `^agentd_broker_connected 1$`,
		`^agentd_rounds_total\{kind="training"`} {
		if !regexp.MustCompile("(?m)" + want).MatchString(page) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

// TestRuleAgainstLiars runs twelve agents, two of which multiply their updates by −10. With the aggregation rule
// median, the federation must learn nevertheless. The log must name the devices with unusually large updates.
func TestRuleAgainstLiars(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole demonstration is not short")
	}
	inTemp(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var out, errs bytes.Buffer
	o := Defaults()
	o.Rule, o.Attack, o.Attackers, o.Rounds = "median", "signflip:10", 2, 30
	o.JSON, o.Stdout, o.Stderr = true, &out, &errs
	r, err := Run(ctx, o)
	if err != nil || r.Federated < 0.4 {
		t.Fatalf("%+v, error %v\n%s", r, err, &errs)
	}
	if want := `"rule":"median","attack":"signflip:10","attackers":2}`; !strings.Contains(out.String(), want) {
		t.Errorf("no %s in %s", want, &out)
	}
	want := "unusually large updates agent=Aotizhongxin"
	if !strings.Contains(errs.String(), want) {
		t.Errorf("no %s in %s", want, &errs)
	}
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Participants = 13 }, "--participants must be between 1 and 12 (0 means 6), but is 13"},
		{func(o *Options) { o.Algorithm, o.Participants = "feddec", 21 },
			"--participants must be between 1 and 20 (0 means 2), but is 21"},
		{func(o *Options) { o.Agentd = "/bin/true" }, "--agentd requires --processes"},
		{func(o *Options) { o.Codec = "int8" }, "--codec requires --algorithm feddec, because it compresses " +
			"snapshots between neighbours: for updates use --set task.codec=int8"},
		{func(o *Options) { o.Rounds = -1 }, "--rounds must be at least 1, but is -1"},
		{func(o *Options) { o.Username = "me" }, "--username, --password-file and --ca-file require --broker: the " +
			"embedded broker has its own users"},
		{func(o *Options) { o.Model = "tree" }, `--model must be linear or mlp, but is "tree"`},
		{func(o *Options) { o.Attackers = 2 }, "--attackers is 2, but --attack is not set: set --attack to the " +
			"kind of attack"},
		{func(o *Options) { o.Attack = "signflip" }, "--attackers must be from 1 to 12, but is 0"},
		{func(o *Options) { o.Attack, o.Attackers, o.Rule = "signflip:10", 2, "krum" },
			"--rule: aggregation.rule: krum requires at least 7 updates per round, but participants is 6"},
		{func(o *Options) { o.Attack, o.Attackers, o.Processes = "nan", 1, true },
			"--attack cannot be used with --processes, because the program agentd cannot send false updates"},
		{func(o *Options) { o.Algorithm, o.Rule = "feddec", "median" },
			"--rule, --attack and --attackers require --algorithm fedavg"},
	} {
		o := Defaults()
		tt.change(&o)
		if err := o.Validate(); err == nil || err.Error() != tt.want {
			t.Errorf("error %v, want %s", err, tt.want)
		}
	}
	o := Defaults()
	if err := o.Validate(); err != nil || o.rounds() != 50 {
		t.Errorf("defaults: %d rounds, error %v", o.rounds(), err)
	}
	if o.Model = "mlp"; o.rounds() != 100 {
		t.Errorf("an mlp has %d rounds, want 100", o.rounds())
	}
}

// TestParticipants checks that the option is applied to the coordinator's settings with each algorithm and task.
func TestParticipants(t *testing.T) {
	for _, tt := range []struct {
		algorithm, task string
		given, want     int
	}{
		{"fedavg", "", 0, 6}, {"fedavg", "", 9, 9}, {"feddec", "air", 0, 6}, {"feddec", "air", 3, 3},
		{"feddec", "", 0, 2}, {"feddec", "", 10, 10}, {"feddec", "regression", 20, 20},
	} {
		o := Defaults()
		o.Algorithm, o.Task, o.Participants = spec.Algorithm(tt.algorithm), tt.task, tt.given
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		if o.Algorithm == spec.FedAvg {
			s := together{&o, &files{}}.coordinator()
			if got := s.Round.Participants; got != tt.want {
				t.Errorf("%+v: %d", tt, got)
			}
			continue
		}
		build := regressionScene
		if tt.task == "air" {
			build = airScene
		}
		s, err := build(&o, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if s.uploads != tt.want {
			t.Errorf("%+v: %d", tt, s.uploads)
		}
	}
}
