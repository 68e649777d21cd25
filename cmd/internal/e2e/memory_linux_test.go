package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestResidentMemory looks at what a running agent holds in memory: idle, and
// after rounds with a model of 4 MB, under the limit that its service sets on a
// gateway. `make size` prints it.
func TestResidentMemory(t *testing.T) {
	const limit = 40e6 // anonymous: what the kernel cannot drop and read again
	t.Setenv("GOMEMLIMIT", "32MiB")
	f := newFederation(t, brokers.OpenMosquitto(t))
	f.Lead(t, "{name: large, features: [a, b], target: y, model: {kind: mlp, hidden: [1000, 1000]}, steps: {budget: "+
		"1s, min: 1, max: 3}}",
		f.AddAgent(t, "one", plane(60)),
		`{participants: 1, quorum: 1, rounds: 3, deadline: 50s, gather: {target: 1, minimum: 1, within: 20s, spread: 10ms}}`)
	agent := f.Daemon(t, "agentd", "one")
	agent.Await(t, "connected")
	report := func(when string) {
		total, anonymous, peak := resident(t, agent.Cmd.Process.Pid)
		t.Logf("agentd %-38s %5.1f MB resident, %5.1f MB of it not on disk; never above %5.1f MB", when, total/1e6,
			anonymous/1e6, peak/1e6)
		if anonymous > limit {
			t.Errorf("%s agentd holds %.1f MB that are not on disk, want at most %.0f MB", when, anonymous/1e6,
				limit/1e6)
		}
	}
	report("idle")
	lead := f.Daemon(t, "coordinator", "coordinator")
	lead.Await(t, "run finished version=3")
	report("after three rounds with a 4 MB model")
	agent.Stop(t, syscall.SIGTERM, 0)
	lead.Stop(t, syscall.SIGTERM, 0)
}

// resident returns what a process has in memory, in bytes, how much of that is
// no copy of a file, and the most that it ever had.
func resident(t *testing.T, pid int) (total, anonymous, peak float64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %f kB", &total) // the other lines are others
		_, _ = fmt.Sscanf(line, "RssAnon: %f kB", &anonymous)
		_, _ = fmt.Sscanf(line, "VmHWM: %f kB", &peak)
	}
	if total == 0 || anonymous == 0 || peak == 0 {
		t.Fatalf("/proc/%d/status has no VmRSS, RssAnon and VmHWM:\n%s", pid, status)
	}
	return total * 1024, anonymous * 1024, peak * 1024
}
