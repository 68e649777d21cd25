package console

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestFaults plants a fault in each of four devices: a bad column, a wrong key, a disk that cannot be written, and an
// unplugged cable. Two clicks lead from the overview to the cause and the remedy of each fault.
func TestFaults(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("making a folder immutable requires root")
	}
	f := testkit.NewFederation(t, programs, "faults", brokers.OpenMosquitto(t))
	address := brokers.FreeAddress(t)
	list := f.AddAgents(t, plane(""), "good", "key", "disk", "cable") + f.AddAgent(t, "column", plane("x"))
	f.ConfigureCoordinator(t, "{name: plane, features: [a, b], target: y}", list,
		"{participants: 3, quorum: 1, rounds: 0, pause: 300ms, deadline: 5s, "+
			"gather: {target: 1, minimum: 1, within: 30s, spread: 10ms}}", "console: {listen: "+address+"}")
	f.Daemon(t, "coordinator", "coordinator").Await(t, "serving the console")
	if err := os.Remove(f.Path("key.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.NewAgent("key"); err != nil { // the list of agents still contains the previous key
		t.Fatal(err)
	}
	f.Agents(t, []string{"good", "key", "column"})
	disk, cable := f.Daemon(t, "agentd", "disk"), f.Daemon(t, "agentd", "cable")
	disk.Await(t, "local training finished")
	cable.Await(t, "local training finished")
	protect(t, f.StateDir("disk"))
	cable.Kill()

	b := openBrowser(t)
	for _, tt := range []struct{ device, cause, remedy string }{
		{"column", `column "b"`, "agentd data check"},
		{"key", "other_key", "coordinator devices rotate key"},
		{"disk", "storage", "free disk space"},
		{"cable", "lost", "check the power and the network"},
	} {
		b.open("http://"+address+"/", "overview")
		b.await("a", "devices take no part")
		testkit.Until(t, tt.device+" takes no part", func() bool {
			return evaluate[bool](b, `[...document.querySelectorAll('a')].some((a) => /^4 of 5 /.test(a.innerText))`)
		})
		b.click("a", "4 of 5 devices take no part")
		b.await(".row", tt.device)
		b.click("a", tt.device)
		b.await(".condition", tt.cause)
		b.await(".condition", tt.remedy)
	}
}

// protect makes a folder and its files immutable until the end of the test, so that even root cannot write to them.
func protect(t *testing.T, dir string) {
	t.Helper()
	names := []string{dir}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() { // not the socket
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	change := func(mode string) {
		if out, err := exec.Command("chattr", append([]string{mode}, names...)...).CombinedOutput(); err != nil {
			t.Errorf("chattr: %v: %s", err, out)
		}
	}
	change("+i")
	t.Cleanup(func() { change("-i") })
}
