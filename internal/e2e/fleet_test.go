package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestFleet checks that rounds close although some agents disappear, are late or are slow.
func TestFleet(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	f.AddAgent(t, "dev", plane(400))
	programs.MustRun(t, "fedlab", "fleet", "--agents", "10", "--config", f.Path("dev.yaml"),
		"--write-keys", f.Path("list"))
	f.lead(t, "",
		`{participants: 6, quorum: 2, rounds: 3, deadline: 1500ms, gather: {target: 10, minimum: 3, within: 1s, spread: 10ms}}`)
	lead := f.Daemon(t, "coordinator", "coordinator", "--set", "identity.agents_file="+f.Path("list"))
	fleet := programs.Start(t, "fedlab", "fleet", "--agents", "10", "--config", f.Path("dev.yaml"), "--slow", "0.3:10",
		"--drop", "0.3", "--late", "0.2")
	lead.Await(t, "run finished version=3")
	fleet.Stop(t, syscall.SIGTERM, 0)
	lead.Stop(t, syscall.SIGTERM, 0)
	for _, p := range []*testkit.Process{fleet, lead} {
		first, last := p.Await(t, "stopping; work in progress is saved"), p.Await(t, "stopped took=")
		if !strings.Contains(first, "terminated signal received") ||
			!strings.HasSuffix(strings.TrimSpace(p.Log()), last) {
			t.Errorf("the log ends with\n%s\n…\n%s", first, last)
		}
	}
	log := lead.Log()
	if n := strings.Count(log, "round closed"); n < 4 { // three training rounds and the statistics round
		t.Errorf("%d rounds closed, want 4 or more", n)
	}
	if !strings.Contains(log, "missing=") {
		t.Error("nobody vanished and nobody was late: this shows nothing")
	}
	if text := fleet.Log(); !strings.Contains(text, " agent=dev-0 ") || !strings.Contains(text, " agent=dev-9 ") ||
		!strings.Contains(text, " rows=40 ") {
		t.Error("the fleet is not dev-0 to dev-9 with forty rows each")
	}
}
