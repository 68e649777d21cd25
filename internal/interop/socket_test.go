package interop

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// serve starts the example trainer as a server on a socket, and returns as soon as it accepts connections. The server
// is killed at the end of the test.
func (e *example) serve(t *testing.T, f *testkit.Federation, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(e.program[0], slices.Insert(slices.Clone(e.program[1:]), 3, "--socket", path)...)
	cmd.Dir, cmd.Env = f.Dir, append(os.Environ(), "PYTHONPATH="+e.path)
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // ignore the error, because the process may have ended
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "listens at "+path) {
			return cmd
		}
	}
	t.Fatalf("the program has ended: %v", cmd.Wait())
	return nil
}

// TestSocket trains with a trainer that runs as a separate process and serves a socket. The trainer crashes in its
// first local step, so one round is lost. After the trainer has been restarted, the device must continue with it.
func TestSocket(t *testing.T) {
	t.Parallel()
	x, e := findTools(t), newExample(t, findPython(t, "numpy"), "growing:Growing", "crashed")
	f := testkit.NewFederation(t, x.programs, "socket", brokers.OpenMosquitto(t))
	f.Write(t, "growing.py", growing)
	initial, path := e.initial(t, f), f.Path("trainer.sock")
	first := e.serve(t, f, path)
	keys := f.AddAgent(t, "a", "unused\n0\n")
	configure(t, f, "a", fmt.Sprintf("trainers: [{name: growing, socket: %q}]\n", path))
	lead, device := startGrowing(t, f, initial, keys, "rounds: 2")
	device.Await(t, `unconfined_reason="the trainer is an independent process at socket `+path)
	device.Await(t, `err="trainer growing: the trainer has exited"`)
	if err := first.Wait(); err == nil || first.ProcessState.ExitCode() != 7 {
		t.Errorf("the program: %v", err)
	}
	e.serve(t, f, path)
	device.Await(t, "trainer started")
	lead.Await(t, "run finished")
}
