package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestPredict runs two agents. Each round selects only one agent for training, but both agents must keep all models of
// the run. One agent rolls back its model while it is running, and makes predictions after all programs have stopped.
func TestPredict(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	f.lead(t, f.AddAgent(t, "one", plane(60))+f.AddAgent(t, "two", plane(60)),
		`{participants: 1, quorum: 1, rounds: 3, deadline: 20s, pause: 500ms, `+
			`gather: {target: 2, minimum: 2, within: 20s, spread: 10ms}}`)
	lead := f.Daemon(t, "coordinator", "coordinator")
	agents := map[string]*testkit.Process{}
	for _, id := range []string{"one", "two"} {
		agents[id] = f.Daemon(t, "agentd", id, "--set", "predict.keep=2", "--set", "predict.refresh=0s",
			"--set", "predict.margin=10", "--set", "evaluation.held_out=0.2",
			"--set", "predict.hook=sh,-c,cp $MODEL_FILE "+f.Path(id+".copy"))
	}
	lead.Await(t, "run finished version=3")
	model := func(id string, args ...string) string {
		args = append([]string{"model"}, args...)
		return programs.MustRun(t, "agentd", append(args, "--config", f.Path(id+".yaml"))...)
	}
	inUse := func(id string) string {
		t.Helper()
		file, err := os.ReadFile(f.Path("state-" + id + "/model.safetensors"))
		if err != nil {
			t.Error(err)
		}
		return string(file)
	}
	exported := func(version string) string {
		return programs.MustRun(t, "coordinator", "model", "export", version, "--state-dir", f.Path("state"),
			"--out", "-")
	}
	for id, p := range agents {
		p.Await(t, "version=2 task=plane pinned=false") // wait until the device has two models
		p.Await(t, "version=3 task=plane pinned=false")
		copied, err := os.ReadFile(f.Path(id + ".copy"))
		if err != nil || string(copied) != exported("3") || inUse(id) != exported("3") {
			t.Errorf("%s does not predict with the coordinator's model 3: %v", id, err)
		}
		model(id, "rollback")
		p.Await(t, "version=2 task=plane pinned=true")
		if got := model(id, "list"); strings.Count(got, "\n") != 3 || !strings.Contains(got, "/2  plane") ||
			!strings.Contains(got, "in use, pinned") || inUse(id) != exported("2") {
			t.Errorf("%s", got)
		}
		status := programs.MustRun(t, "agentd", "status", "--config", f.Path(id+".yaml"))
		if !strings.Contains(status, "/2, in use for ") {
			t.Error("the status tells another model")
		}
		p.Stop(t, syscall.SIGTERM, 0)
	}
	lead.Stop(t, syscall.SIGTERM, 0)
	model("one", "use", "newest")
	if inUse("one") != exported("3") {
		t.Error("model use newest")
	}
	rows := f.Write(t, "rows.csv", plane(5))
	got := programs.MustRun(t, "agentd", "predict", rows, "--config", f.Path("one.yaml"))
	if named := programs.MustRun(t, "agentd", "predict", rows, "--model", f.Path("one.copy")); got != named ||
		strings.Count(got, "\n") != 6 || !strings.HasPrefix(got, "line,prediction\n2,") {
		t.Errorf("%s\n%s", got, named)
	}
}
