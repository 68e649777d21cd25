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

// Patience bounds every wait for what takes some seconds at most.
const Patience = time.Minute

// Process is a program that a test has started. Its log is its standard error.
type Process struct {
	*launch.Process
	Stdout bytes.Buffer // complete after the program has ended
}

// Start starts a program of ours; it is killed at the end of the test if it still runs.
func (p Programs) Start(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	return Start(t, exec.Command(filepath.Join(string(p), program), args...))
}

// Start starts any program; it is killed at the end of the test if it still runs.
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

// Await returns the first line of the log that holds a text, once it is there.
func (p *Process) Await(t testing.TB, text string) string {
	t.Helper()
	return p.AwaitFor(t, Patience, text)
}

// AwaitFor is Await with a patience of its own.
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

// Stop sends a signal, and wants the program to end with a code soon.
func (p *Process) Stop(t testing.TB, s syscall.Signal, code int) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	p.Wait(t, code)
}

// StopAll stops daemons one after the other as systemd does.
func StopAll(t testing.TB, all ...*Process) {
	t.Helper()
	for _, p := range all {
		p.Stop(t, syscall.SIGTERM, 0)
	}
}

// Memory returns a line of the program's /proc/PID/status in bytes. It needs Linux.
func (p *Process) Memory(t testing.TB, line string) float64 {
	t.Helper()
	bytes := launch.Memory(p.Cmd.Process.Pid, "status", line)
	if bytes == 0 {
		t.Fatalf("%s has no %s", p.Name, line)
	}
	return float64(bytes)
}

// Wait wants the program to end by itself with a code soon.
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
