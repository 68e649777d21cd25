package testkit

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/lab/launch"
)

// Patience is the timeout of each wait in a test. The awaited operations normally take a few seconds.
const Patience = time.Minute

// Process is a program that was started by a test. The test reads the program's standard error as its log.
type Process struct {
	*launch.Process
	Stdout bytes.Buffer // Read it only after the program has ended.
}

// Start starts one of the fedmesh programs with the given arguments. The process is killed at the end of the test.
func (p Programs) Start(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	return Start(t, exec.Command(filepath.Join(string(p), program), args...))
}

// Start starts the command cmd as a process. The process is killed at the end of the test.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{}
	cmd.Stdout = &p.Stdout
	var err error
	if p.Process, err = launch.Start(cmd, launch.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s\n%s", p.Name, p.Log())
		}
	})
	return p
}

// Await waits until a log line contains the given text, and returns the line. Await fails the test after Patience.
func (p *Process) Await(t testing.TB, text string) string {
	t.Helper()
	return p.AwaitFor(t, Patience, text)
}

// AwaitFor waits like Await, but with the given time limit.
func (p *Process) AwaitFor(t testing.TB, long time.Duration, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	line, _, err := p.AwaitLine(ctx, 0, func(line string) bool { return strings.Contains(line, text) })
	if err != nil {
		t.Fatalf("no line with %q: %v\n%s", text, err, p.Log())
	}
	return line
}

// Stop sends a signal to the process. It fails the test if the process does not end soon with the expected exit code.
func (p *Process) Stop(t testing.TB, s syscall.Signal, code int) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	p.Wait(t, code)
}

// StopAll stops the given daemons one after the other with SIGTERM, the signal that systemd uses.
func StopAll(t testing.TB, all ...*Process) {
	t.Helper()
	for _, p := range all {
		p.Stop(t, syscall.SIGTERM, 0)
	}
}

// Memory returns the value of the given line in /proc/PID/status of the process, in bytes. Memory works only on Linux.
func (p *Process) Memory(t testing.TB, line string) float64 {
	t.Helper()
	bytes := launch.Memory(p.Cmd.Process.Pid, "status", line)
	if bytes == 0 {
		t.Fatalf("%s has no %s", p.Name, line)
	}
	return float64(bytes)
}

// Wait waits for the process to end without a signal. It fails the test if the exit code differs from code.
func (p *Process) Wait(t testing.TB, code int) {
	t.Helper()
	select {
	case <-p.Ended:
	case <-time.After(Patience):
		t.Fatalf("%s does not end:\n%s", p.Name, p.Log())
	}
	if got := p.Cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("%s: exit %d, want %d:\n%s", p.Name, got, code, p.Log())
	}
}
