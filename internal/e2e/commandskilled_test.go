package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// killing is a federation whose coordinator is killed while it executes commands.
type killing struct {
	*federation
	lead *testkit.Process
	draw *rand.Rand
}

// strike runs a command, kills the coordinator during the command or just after it, and restarts the coordinator.
// strike reports whether the command succeeded.
func (k *killing) strike(t *testing.T, words ...string) bool {
	t.Helper()
	if words[0] != "restandardize" { // the command restandardize uses the flag --state-dir instead
		words = append(words, "--config", k.Path("coordinator.yaml"))
	}
	p := programs.Start(t, "coordinator", words...)
	<-time.After(time.Duration(k.draw.IntN(60)) * time.Millisecond)
	k.lead.Kill()
	select {
	case <-p.Ended:
	case <-time.After(testkit.Patience):
		t.Fatalf("%s does not end:\n%s", p.Name, p.Log())
	}
	k.lead = k.Daemon(t, "coordinator", "coordinator")
	testkit.Until(t, "the status", func() bool { return k.picture(t).Phase != "" })
	code := p.Cmd.ProcessState.ExitCode()
	t.Logf("%s: exit status %d", strings.Join(words, " "), code)
	if code > 1 || code == 1 && strings.TrimSpace(p.Log()) == "" {
		t.Errorf("%s: exit status %d: %s", p.Name, code, p.Log())
	}
	return code == 0
}

// goesOn waits until the coordinator has produced more models.
func (k *killing) goesOn(t *testing.T) {
	t.Helper()
	at := k.picture(t).Aggregations
	testkit.Until(t, "more models", func() bool {
		n := k.picture(t).Aggregations
		return n > at+1 || n > 0 && n < at // a smaller number of models means that a new run has started
	})
}

// TestCommandsKilled kills the coordinator at random times during commands that change or read its state. Completed
// commands must stay in effect, and the federation must continue. The command task apply is tested by
// TestLifecycleKilled.
func TestCommandsKilled(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	list := f.AddAgent(t, "one", plane(60)) + f.AddAgent(t, "two", plane(60)) + f.AddAgent(t, "three", plane(60))
	f.lead(t, list, forEver)
	k := &killing{f, f.Daemon(t, "coordinator", "coordinator"), rand.New(rand.NewPCG(17, 1))}
	f.Agents(t, []string{"one", "two", "three"})
	k.lead.Await(t, "model ready")
	for range 4 {
		k.steer(t)
		k.models(t)
		k.files(t)
	}
	k.reload(t, list)
	k.lead.Stop(t, syscall.SIGTERM, 0)
}

// steer kills the coordinator during the commands pause, resume and stop.
func (k *killing) steer(t *testing.T) {
	if k.strike(t, "task", "pause") {
		k.awaitPhase(t, "paused")
	}
	if !k.strike(t, "task", "resume") {
		k.mustTask(t, "the run continues", "resume")
	}
	k.goesOn(t)
	if k.strike(t, "task", "stop") {
		k.awaitPhase(t, "finished")
	}
	k.mustTask(t, "the run continues", "resume")
	k.goesOn(t)
}

// models kills the coordinator during the commands that start a run from a model.
func (k *killing) models(t *testing.T) {
	for _, words := range [][]string{{"model", "use", "1"}, {"model", "rollback"}} {
		version := k.picture(t).Task.Version
		if k.strike(t, words...) {
			testkit.Until(t, "the next version of the task", func() bool { return k.picture(t).Task.Version > version })
		}
		k.goesOn(t)
	}
}

// files kills the coordinator during commands that read the state, and during the reset of a device.
func (k *killing) files(t *testing.T) {
	backup := k.Path("backup.tar")
	_ = os.Remove(backup)
	if k.strike(t, "backup", backup) {
		k.restore(t, backup)
	} else if _, err := os.Stat(backup); err == nil {
		t.Error("a part of a backup has the name of a whole one")
	}
	if !k.strike(t, "history", "export", "--out", k.Path("history.csv")) {
		t.Error("the history cannot be exported while the coordinator is killed")
	}
	k.strike(t, "devices", "reset", "two")
	k.strike(t, "restandardize", "--state-dir", k.Path("state"))
	k.goesOn(t)
}

// reload kills the coordinator while it reloads the list of agents. After the restart the new list must be in effect.
func (k *killing) reload(t *testing.T, list string) {
	for _, lines := range []string{list + k.AddAgent(t, "four", plane(60)), list} {
		k.Write(t, "agents.keys", lines)
		if err := k.lead.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		k.strike(t, "devices", "list")
		said := programs.MustRun(t, "coordinator", "devices", "list", "--config", k.Path("coordinator.yaml"))
		if want := fmt.Sprintf("%d: ", strings.Count(lines, "\n")); !strings.Contains(said, want) {
			t.Errorf("want %s in\n%s", want, said)
		}
		k.goesOn(t)
	}
}

// restore kills the coordinator during the restore of a backup, and then completes the restore.
func (k *killing) restore(t *testing.T, backup string) {
	t.Helper()
	folder := k.Path("restored")
	empty := func() {
		if err := errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	empty()
	words := []string{"restore", backup, "--config", k.Path("coordinator.yaml"), "--set", "state_dir=" + folder}
	p := programs.Start(t, "coordinator", words...)
	<-time.After(time.Duration(k.draw.IntN(60)) * time.Millisecond)
	p.Kill()
	if code, _, said := programs.Run(t, "coordinator", words...); code != 0 {
		if !strings.Contains(said, "contains a run") && !strings.Contains(said, "is not a state folder") {
			t.Errorf("after a restore that was killed: exit status %d, %s", code, said)
		}
		empty()
		programs.MustRun(t, "coordinator", words...)
	}
}
