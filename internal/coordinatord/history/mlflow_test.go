package history

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/wire"
)

// tracking returns a configuration for run 7, whose task has the given number of keys.
func tracking(url string, client *http.Client, keys int) *MLflowTracking {
	return &MLflowTracking{URL: url, Token: "secret", Experiment: "air", Federation: "plant", ProgramVersion: "v1",
		HTTP: client,
		ReadAppliedTask: func() (wire.RunID, []config.Setting) {
			var all []config.Setting
			for i := range keys {
				all = append(all, config.Setting{Key: fmt.Sprint("task.key", i), Value: strings.Repeat("v", 3*i)})
			}
			return 7, all
		}}
}

func newStandIn(t *testing.T) *standIn { return &standIn{t: t, token: "Bearer secret", page: 100} }

// many returns n rounds of a run, more than fit into a batch.
func many(run wire.RunID, n int) (all []runs.HistoryEntry) {
	for i := range n {
		risk := 1 / float64(i+1)
		all = append(all, runs.HistoryEntry{Time: time.UnixMilli(int64(1000 * (i + 1))), Run: run,
			Round: wire.RoundID(i + 1), Kind: "training", Outcome: "closed", Version: wire.ModelVersion(i + 1),
			SelectedAgents: 3, AcceptedUpdates: 3, RoundSeconds: 1, MeanAgentRisk: &risk})
	}
	return all
}

// TestMLflow exports over a socket. It checks the experiment, one MLflow run per run, the parameters of the current
// run, and that repeated exports log each value once.
func TestMLflow(t *testing.T) {
	s := newStandIn(t)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	about := tracking(web.URL+"/", web.Client(), 2)
	export := func(all []runs.HistoryEntry) {
		t.Helper()
		write(t, NewMLflow(t.Context(), about), all)
	}
	all := rounds()
	before := all[4] // the run ends after it, so its entry is repeated with the reason
	before.StopReason = ""
	all = append(all[:4:4], before, all[4])
	export(all[:4])
	export(all)
	export(all)
	s.doubled()
	if len(s.experiments) != 1 || s.experiments[0] != "air" || len(s.runs) != 2 {
		t.Fatalf("experiments %v, %d runs", s.experiments, len(s.runs))
	}
	earlier, x := s.runs[0], s.runs[1]
	if len(earlier.params) != 0 || earlier.status != statusFinished || len(earlier.points) != 4 {
		t.Errorf("the earlier run: %+v", earlier)
	}
	at := rounds()[4].Time.UnixMilli()
	if x.name != "plant/7" || x.status != statusFinished || x.end != at || x.start != rounds()[3].Time.UnixMilli() ||
		len(x.params) != 2 || x.tags["fedmesh.version"] != "v1" || len(x.points) != 12 {
		t.Errorf("run 7: %+v", x)
	}
	if got := x.points[7]; got != (metricPoint{"held_out_risk", 1.125, at, 300}) {
		t.Errorf("got %+v", got)
	}
	about.ReadAppliedTask = func() (wire.RunID, []config.Setting) { // another task continues the run
		return 7, []config.Setting{{Key: "task.key0", Value: "other"}, {Key: "task.more", Value: "1"}}
	}
	more := all[5] // round.rounds is raised: another model, and the run continues
	more.StopReason, more.Version, more.Time = "", 301, more.Time.Add(time.Second)
	export(append(all, more))
	if s.runs[1].status != statusRunning || len(s.runs[1].points) != 18 || s.runs[1].params["task.key0"] != "" ||
		s.runs[1].params["task.more"] != "1" {
		t.Errorf("a run that goes on: %+v", s.runs[1])
	}
}

// TestMLflowLimits checks that batches and parameter values respect MLflow's limits, and that all pages of a long
// history are read.
func TestMLflowLimits(t *testing.T) {
	s := newStandIn(t)
	for range 2 {
		write(t, NewMLflow(t.Context(), tracking("http://mlflow", &http.Client{Transport: s}, 2101)), many(7, 700))
		s.doubled()
		if x := s.runs[0]; len(x.points) != 4*700 || len(x.params) != 2101 || len(x.params["task.key2100"]) != 6000 {
			t.Errorf("%d values, %d parameters", len(x.points), len(x.params))
		}
	}
}

// TestMLflowRefuses checks that errors name the request, and that a deleted run stays deleted.
func TestMLflowRefuses(t *testing.T) {
	s := newStandIn(t)
	about := tracking("http://mlflow", &http.Client{Transport: s}, 1)
	export := func() error {
		m := NewMLflow(t.Context(), about)
		for _, e := range many(7, 3) {
			if err := m.WriteRound(&e); err != nil {
				return err
			}
		}
		return m.Close()
	}
	about.Token = ""
	if err := export(); err == nil || !strings.HasPrefix(err.Error(),
		"http://mlflow/api/2.0/mlflow/experiments/get-by-name: 401 Unauthorized: who are you?") {
		t.Errorf("without a token: %v", err)
	}
	about.Token = "secret"
	s.cut = true
	if err := export(); err == nil || !strings.Contains(err.Error(), "runs/log-batch: INTERNAL_ERROR: the answer is") {
		t.Errorf("a lost answer: %v", err)
	}
	if err := export(); err != nil || s.values() != 12 {
		t.Errorf("after a lost answer: %v, %d values", err, s.values())
	}
	s.doubled()
	s.runs[0].stage, s.runs[0].points = "deleted", nil
	if err := export(); err != nil || s.values() != 0 || len(s.runs) != 1 {
		t.Errorf("a deleted run: %v, %d values, %d runs", err, s.values(), len(s.runs))
	}
}

// following is a history that a process follows.
type following struct {
	t      *testing.T
	dir    string
	server *standIn
	told   []error // results reported by the current process
}

func newFollowing(t *testing.T) *following {
	return &following{t: t, dir: t.TempDir(), server: newStandIn(t)}
}

func (f *following) path() string { return filepath.Join(f.dir, "history.jsonl") }

func (f *following) write(text string) {
	f.t.Helper()
	file, err := os.OpenFile(f.path(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		f.t.Fatal(err)
	}
}

func (f *following) add(all ...runs.HistoryEntry) {
	f.t.Helper()
	for _, e := range all {
		line, err := json.Marshal(e)
		if err != nil {
			f.t.Fatal(err)
		}
		f.write(string(line) + "\n")
	}
}

// begin starts a process that follows the history. It must run in a synctest bubble.
func (f *following) begin(t *testing.T) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	f.told = nil
	go FollowToMLflow(ctx, f.dir, tracking("http://mlflow", &http.Client{Transport: f.server}, 3), func(err error) {
		f.server.mu.Lock()
		defer f.server.mu.Unlock()
		f.told = append(f.told, err)
	})
	synctest.Wait()
	return func() { cancel(); synctest.Wait() }
}

// last returns the result of the last attempt.
func (f *following) last() error { return f.told[len(f.told)-1] }

// pass waits for d. The lock orders earlier reads before later changes.
func (f *following) pass(d time.Duration) {
	f.server.mu.Lock()
	f.server.mu.Unlock() //nolint:staticcheck // nothing stands between
	<-time.After(d)
	synctest.Wait()
}

// TestFollowNextRun checks that if the server fails at the start of another run, that run is logged later and the
// previous run is unchanged.
func TestFollowNextRun(t *testing.T) {
	f := newFollowing(t)
	s, first := f.server, many(7, 3)
	ended := first[2]
	ended.AbandonReason, ended.StopReason = "quorum", "rounds" // the round after the last model was abandoned
	f.add(append(first, ended)...)
	synctest.Test(t, func(t *testing.T) {
		f.begin(t)()
		if len(s.runs) != 1 || s.runs[0].status != statusFinished {
			t.Errorf("a run that ends with a round that was given up: %+v", s.runs)
		}
		s.creates = 2
		f.add(many(8, 4)...)
		defer f.begin(t)() // this process reads entries of both runs
		f.pass(time.Hour)
		s.doubled()
		if len(s.runs) != 2 || s.runs[0].status != statusFinished || s.runs[1].status != statusRunning ||
			len(s.runs[1].points) != 4*4 || f.last() != nil {
			t.Errorf("%d runs, %v", len(s.runs), f.told)
		}
	})
}

// TestFollow checks that rounds are logged as they are written. A round that the server missed is logged later, even by
// another process, and no round is logged twice.
func TestFollow(t *testing.T) {
	f, all := newFollowing(t), many(7, 25)
	synctest.Test(t, func(t *testing.T) { f.away(t, all[:18]) })
	f.server.away = false
	synctest.Test(t, func(t *testing.T) { f.again(t, all[18:]) })
}

// away follows the first rounds of a run with a server that is unavailable for hours and loses an answer.
func (f *following) away(t *testing.T, all []runs.HistoryEntry) {
	s, end := f.server, f.begin(t)
	if len(f.told) != 1 || f.last() != nil || len(s.experiments) != 1 {
		t.Errorf("before the first round: %v", f.told)
	}
	f.add(all[:3]...)
	info, err := os.Stat(f.path())
	if err != nil {
		t.Fatal(err)
	}
	f.write(`{"time":`) // an incomplete line
	f.pass(pollInterval)
	if s.values() != 12 {
		t.Errorf("%d values of 3 rounds", s.values())
	}
	if err := os.Truncate(f.path(), info.Size()); err != nil {
		t.Fatal(err)
	}
	s.away = true
	f.add(all[3:13]...)
	f.pass(time.Hour)
	failed := len(f.told)
	if f.pass(time.Hour); len(f.told)-failed < 11 || len(f.told)-failed > 13 || f.told[failed] == nil {
		t.Errorf("%d tries in an hour", len(f.told)-failed)
	}
	s.away, s.cut = false, true
	f.pass(2 * mostPause)
	if s.doubled(); s.values() != 4*13 || f.last() != nil {
		t.Errorf("%d values of 13 rounds: %v", s.values(), f.last())
	}
	before := s.calls
	if f.pass(time.Hour); s.calls != before {
		t.Errorf("%d calls without a round", s.calls-before)
	}
	s.away = true
	f.add(all[13:]...)
	f.pass(pollInterval)
	end()
}

// again follows the rounds after the first 18, as another process, until the history is deleted.
func (f *following) again(t *testing.T, all []runs.HistoryEntry) {
	f.add(all[:5]...)
	s := f.server
	defer f.begin(t)()
	if s.doubled(); s.values() != 4*23 || f.told[0] != nil {
		t.Errorf("another process: %d values of 23 rounds: %v", s.values(), f.told)
	}
	if f.add(all[5]); s.runs[0].status != statusRunning {
		t.Errorf("it is %s", s.runs[0].status)
	}
	f.pass(pollInterval)
	s.away = true
	f.add(all[6])
	f.pass(pollInterval)
	s.away = false
	f.pass(mostPause)
	s.doubled()
	if s.values() != 4*25 || len(s.runs) != 1 || f.last() != nil {
		t.Errorf("%d values of 25 rounds, %d runs, %v", s.values(), len(s.runs), f.last())
	}
	if err := os.Remove(f.path()); err != nil {
		t.Fatal(err)
	}
	f.pass(pollInterval)
	if f.last() == nil {
		t.Error("the history is gone, and yet rounds are said to be logged")
	}
}
