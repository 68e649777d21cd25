package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

const forEver = `{participants: 3, quorum: 3, deadline: 20s, pause: 50ms, ` +
	`gather: {target: 3, minimum: 3, within: 20s, spread: 10ms}}`

// task runs the command `coordinator task` with the given arguments.
func (f *federation) task(t *testing.T, words ...string) (code int, stdout, stderr string) {
	t.Helper()
	return programs.Run(t, "coordinator", append(append([]string{"task"}, words...), "--config",
		f.Path("coordinator.yaml"))...)
}

// mustTask runs a task command that must succeed and print want.
func (f *federation) mustTask(t *testing.T, want string, words ...string) {
	t.Helper()
	if code, stdout, stderr := f.task(t, words...); code != 0 || !strings.Contains(stdout, want) {
		t.Fatalf("task %s: exit status %d, %s%s\nwant %s", strings.Join(words, " "), code, stdout, stderr, want)
	}
}

// noTask runs a task command that must fail with the given exit status and text.
func (f *federation) noTask(t *testing.T, status int, want string, words ...string) {
	t.Helper()
	if code, stdout, stderr := f.task(t, words...); code != status || !strings.Contains(stderr, want) {
		t.Fatalf("task %s: exit status %d, %s%s\nwant %d, %s", strings.Join(words, " "), code, stdout, stderr, status,
			want)
	}
}

// picture returns selected fields of the output of the status command.
func (f *federation) picture(t *testing.T) (p struct {
	Phase        string
	Aggregations int
	Task         struct{ Version, Next int }
}) {
	t.Helper()
	code, text, _ := programs.Run(t, "coordinator", "status", "--json", "--config", f.Path("coordinator.yaml"))
	if code != 0 {
		return p // the coordinator is still starting
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func (f *federation) awaitPhase(t *testing.T, phase string) {
	t.Helper()
	testkit.Until(t, "phase "+phase, func() bool { return f.picture(t).Phase == phase })
}

// edited returns the path of a copy of the applied task file in which the text old is replaced by new.
func (f *federation) edited(t *testing.T, old, new string) string {
	t.Helper()
	_, text, _ := f.task(t, "show")
	if !strings.Contains(text, old) {
		t.Fatalf("%q is not in\n%s", old, text)
	}
	return f.Write(t, "edited.yaml", strings.Replace(text, old, new, 1))
}

// TestLifecycle controls a run with commands: pause, kill, resume, apply a task that continues the run, apply a task
// that starts a new run, and stop.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	list := f.AddAgents(t, plane(60), "one", "two", "three")
	f.lead(t, list, forEver)
	f.mustTask(t, "# The task of the configuration file; no run has begun yet.", "show")
	f.noTask(t, 1, "no running coordinator", "pause")
	lead := f.Daemon(t, "coordinator", "coordinator")
	f.Agents(t, []string{"one", "two", "three"})
	lead.Await(t, "model ready")
	f.mustTask(t, "# The task in effect, version 1.", "show")

	f.mustTask(t, "", "pause")
	f.awaitPhase(t, "paused")
	at := f.picture(t).Aggregations
	lead.Kill()
	lead = f.Daemon(t, "coordinator", "coordinator")
	f.awaitPhase(t, "paused")
	f.mustTask(t, "the run continues", "resume")
	testkit.Until(t, "more models", func() bool { return f.picture(t).Aggregations > at+1 })

	slower := f.edited(t, "max: 20", "max: 7")
	f.mustTask(t, "task.steps.max: 20 -> 7 (the run continues; the schedule continues)\napplying this task would "+
		"not end the run", "diff",
		slower)
	f.mustTask(t, "; the run continues from its model", "apply", slower)
	testkit.Until(t, "the other task", func() bool { return f.picture(t).Task.Version == 2 })
	lead.Await(t, "switched to the newly configured task version=2")
	at = f.picture(t).Aggregations
	testkit.Until(t, "more models", func() bool { return f.picture(t).Aggregations > at+1 })
	f.mustTask(t, "does not differ from the applied task", "apply", slower)

	f.refusedTasks(t)
	f.mustTask(t, "a new run begins from the present model", "apply",
		f.edited(t, "frozen: []", "frozen: [layer0.bias]"), "--from", "present", "--now")
	lead.Await(t, "starting a run from a model")
	testkit.Until(t, "the other task", func() bool { return f.picture(t).Task.Version == 3 })

	f.mustTask(t, "", "stop")
	f.awaitPhase(t, "finished")
	lead.Stop(t, syscall.SIGTERM, 0)
	f.mustTask(t, "# The task in effect, version 3.", "show")
	lead = f.Daemon(t, "coordinator", "coordinator")
	lead.Await(t, "task in the configuration file differs from the applied task, which stays in effect")
	f.awaitPhase(t, "finished")
	f.noTask(t, 1, "cannot pause", "pause")
	f.mustTask(t, "the run continues", "resume")
	at = f.picture(t).Aggregations
	testkit.Until(t, "more models", func() bool { return f.picture(t).Aggregations > at+1 })
	f.mustTask(t, "", "stop", "--now")
	f.awaitPhase(t, "finished")
	f.mustTask(t, "round.rounds: 0 -> 1 (the run continues)", "apply", f.edited(t, "  rounds: 0", "  rounds: 1"))
	testkit.Until(t, "the other task", func() bool { return f.picture(t).Task.Version == 4 })
	f.noTask(t, 1, "the run is finished: raise the limit", "resume")
	f.noTask(t, 1, "the run is finished", "pause")
	lead.Stop(t, syscall.SIGTERM, 0)
}

// refusedTasks checks that task apply changes nothing if a task is invalid or needs a further flag.
func (f *federation) refusedTasks(t *testing.T) {
	t.Helper()
	f.noTask(t, 78, "edited.yaml:", "apply", f.edited(t, "min_rows: 10", "min_rows: none"))
	f.noTask(t, 1, "the change requires a new run from an initial model: add --new-run", "apply",
		f.edited(t, "features: [a, b]", "features: [a]"))
	f.mustTask(t, "task.features: [a, b] -> [a] (new run from an initial model; the model has different inputs)\n"+
		"to apply this task, add --new-run", "diff", f.Path("edited.yaml"))
	f.noTask(t, 1, "cannot begin a run from this model", "apply", f.Path("edited.yaml"), "--from", "present")
	f.noTask(t, 1, "cannot begin a run from this model", "apply", "--from", "12345")
	f.noTask(t, 2, "specify the FILE", "apply")
	if v := f.picture(t).Task; v.Version != 2 || v.Next != 0 {
		t.Errorf("the task is %+v", v)
	}
}

// TestLifecycleKilled kills the coordinator at random times after `task apply`. An applied task must stay in effect,
// and the run must continue.
func TestLifecycleKilled(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	list := f.AddAgent(t, "one", plane(60)) + f.AddAgent(t, "two", plane(60)) + f.AddAgent(t, "three", plane(60))
	f.lead(t, list, forEver)
	lead := f.Daemon(t, "coordinator", "coordinator")
	f.Agents(t, []string{"one", "two", "three"})
	lead.Await(t, "model ready")
	steps, version := 20, 1
	for i := range 8 {
		_, text, _ := f.task(t, "show")
		was, is := fmt.Sprint("max: ", steps), fmt.Sprint("max: ", steps+1)
		file := f.Write(t, "edited.yaml", strings.Replace(text, was, is, 1))
		words := []string{"apply", file}
		if i%3 == 1 {
			words = append(words, "--now")
		}
		if i%3 == 2 {
			words = append(words, "--from", "present")
		}
		code, _, said := f.task(t, words...)
		if code != 0 {
			t.Fatal(said)
		}
		<-time.After(time.Duration(i*i) * time.Millisecond)
		lead.Kill()
		lead = f.Daemon(t, "coordinator", "coordinator")
		steps, version = steps+1, version+1
		testkit.Until(t, "the other task", func() bool { return f.picture(t).Task.Version == version })
		at := f.picture(t).Aggregations
		testkit.Until(t, "more models", func() bool {
			p := f.picture(t)
			return p.Aggregations > at+1 || p.Aggregations < at
		})
	}
	if _, text, _ := f.task(t, "show"); !strings.Contains(text, fmt.Sprint("max: ", steps)) {
		t.Errorf("after all it is\n%s", text)
	}
	lead.Stop(t, syscall.SIGTERM, 0)
	if _, err := os.Stat(f.Path("state/control.a")); err != nil {
		t.Error(err)
	}
}

// TestModelsAndBackup checks that a run can return to an earlier model. It also checks that agents accept a coordinator
// whose state was restored from a backup, although the agents have seen later rounds.
func TestModelsAndBackup(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	list := f.AddAgent(t, "one", plane(60)) + f.AddAgent(t, "two", plane(60)) + f.AddAgent(t, "three", plane(60))
	tokens := f.Write(t, "tokens", "view 0123456789abcdef\noperate fedcba9876543210 alice\n")
	f.ConfigureCoordinator(t, "{name: plane, features: [a, b], target: y, steps: {budget: 100ms, max: 20}}", list,
		forEver,
		"console: {listen: \"127.0.0.1:0\", control: true, tokens_file: "+tokens+"}\n"+
			"history: {mlflow: {url: \"http://"+brokers.FreeAddress(t)+"\"}}") // No server listens at this address.
	config := []string{"--config", f.Path("coordinator.yaml")}
	lead := f.Daemon(t, "coordinator", "coordinator")
	f.Agents(t, []string{"one", "two", "three"})
	_, url, _ := strings.Cut(lead.Await(t, "serving the console url="), "url=")
	url = strings.TrimSuffix(strings.TrimSpace(url), "/")
	testkit.Until(t, "models", func() bool { return f.picture(t).Aggregations > 4 })
	asked(t, url, "GET", "/v1/task", "0123456789abcdef", 200)
	asked(t, url, "POST", "/v1/task/pause", "0123456789abcdef", 403)
	asked(t, url, "POST", "/v1/task/pause", "fedcba9876543210", 200)
	f.awaitPhase(t, "paused")
	lead.Await(t, "command failed request=\"POST /v1/task/pause\" who=\"token of line 1\"")
	lead.Await(t, "command executed request=\"POST /v1/task/pause\" who=\"token alice\" from=127.0.0.1:")
	at := f.picture(t).Aggregations
	said := programs.MustRun(t, "coordinator", "model", "diff", fmt.Sprint(at-1), "--state-dir", f.Path("state"))
	if !strings.Contains(said, "layer0.weight  [1 2]") || !strings.Contains(said, "version") {
		t.Errorf("model diff says\n%s", said)
	}
	said = programs.MustRun(t, "coordinator", append([]string{"history", "export"}, config...)...)
	if head, _, _ := strings.Cut(said, "\n"); !strings.HasPrefix(head, "time,run,round") ||
		strings.Count(said, ",training,closed,") != at {
		t.Errorf("after %d aggregations the history is\n%s", at, said)
	}
	lead.Await(t, "cannot log rounds to MLflow")
	said = programs.MustRun(t, "coordinator", append([]string{"status"}, config...)...)
	if !strings.Contains(said, "cannot log rounds to MLflow") {
		t.Errorf("status says\n%s", said)
	}
	programs.MustRun(t, "coordinator", append([]string{"backup", f.Path("backup.tar")}, config...)...)
	said = programs.MustRun(t, "coordinator", append([]string{"model", "rollback"}, config...)...)
	if !strings.Contains(said, fmt.Sprintf("/%d", at-1)) {
		t.Errorf("model rollback says %s", said)
	}
	f.mustTask(t, "the run continues", "resume")
	lead.Await(t, "starting a run from a model")
	testkit.Until(t, "models", func() bool { p := f.picture(t); return p.Task.Version == 2 && p.Aggregations > 2 })
	lead.Stop(t, syscall.SIGTERM, 0)

	moved := append(config, "--set", "state_dir="+f.Path("restored"))
	if err := os.Mkdir(f.Path("restored"), 0o700); err != nil {
		t.Fatal(err)
	}
	said = programs.MustRun(t, "coordinator", append([]string{"restore", f.Path("backup.tar")}, moved...)...)
	if !strings.Contains(said, "at its next start, the coordinator continues from epoch 2") {
		t.Errorf("restore says %s", said)
	}
	lead = f.Daemon(t, "coordinator", "coordinator", moved[2:]...)
	lead.Await(t, "rounds started")
	said = programs.MustRun(t, "coordinator", append([]string{"task", "resume"}, moved...)...)
	if !strings.Contains(said, "the run continues") {
		t.Errorf("resume says %s", said)
	}
	lead.Await(t, fmt.Sprintf("model ready version=%d", at+2))
	lead.Stop(t, syscall.SIGTERM, 0)
}

// asked sends a request with a token and checks the HTTP status of the response.
func asked(t *testing.T, url, method, path, token string, want int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != want {
		text, _ := io.ReadAll(answer.Body)
		t.Errorf("%s %s: %d %s, want %d", method, path, answer.StatusCode, text, want)
	}
}
