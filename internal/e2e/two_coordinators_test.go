package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestTwoCoordinators starts a second coordinator on an older copy of the state folder. The second coordinator must
// name the cause and exit with status 78, while the first coordinator continues. After the first coordinator has
// stopped, a coordinator must be able to lead from the copy after the command promote.
func TestTwoCoordinators(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	f.lead(t, f.AddAgent(t, "one", plane(20))+f.AddAgent(t, "two", plane(30)),
		`{participants: 2, quorum: 2, pause: 100ms, deadline: 20s, gather: {target: 2, minimum: 2, within: 20s, spread: 10ms}}`)
	agents := []*testkit.Process{f.Daemon(t, "agentd", "one"), f.Daemon(t, "agentd", "two")}
	lead := f.Daemon(t, "coordinator", "coordinator")
	lead.Await(t, "round closed round=2")
	lead.Stop(t, syscall.SIGTERM, 0)
	if err := os.CopyFS(f.Path("copy"), os.DirFS(f.Path("state"))); err != nil {
		t.Fatal(err)
	}
	lead = f.Daemon(t, "coordinator", "coordinator")
	lead.Await(t, "round closed")

	copied := []string{"--set", "state_dir=" + f.Path("copy")}
	second := f.Daemon(t, "coordinator", "coordinator", copied...)
	second.Wait(t, 78)
	if log := second.Log(); !strings.Contains(log,
		"another coordinator is running with this key, or this state folder is an older copy") ||
		!strings.Contains(log, "coordinator restore") || strings.Contains(log, "round opened") {
		t.Errorf("it says:\n%s", log)
	}
	n := strings.Count(lead.Log(), "round closed")
	testkit.Until(t, "the first one goes on", func() bool { return strings.Count(lead.Log(), "round closed") > n+1 })
	if code, _, stderr := f.Run(t, "coordinator", "restore", "--config", f.Path("coordinator.yaml")); code != 1 ||
		!strings.Contains(stderr, "stop that program") {
		t.Errorf("restore beside the running coordinator: exit %d, %s", code, stderr)
	}
	lead.Stop(t, syscall.SIGTERM, 0)

	out := f.MustRun(t, "coordinator", "promote", "--state-dir", f.Path("copy"))
	if !strings.Contains(out, "continues from epoch 2") {
		t.Errorf("promote says %q", out)
	}
	second = f.Daemon(t, "coordinator", "coordinator", copied...)
	second.Await(t, "round closed")
	lead = f.Daemon(t, "coordinator", "coordinator") // the folder of this coordinator is now the older copy
	lead.Wait(t, 78)
	second.Stop(t, syscall.SIGTERM, 0)
	testkit.StopAll(t, agents...)
}
