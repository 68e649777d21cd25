package testkit

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience bounds every wait for what takes some seconds at most.
const Patience = time.Minute

// Process is a program that runs, with what it logs on stderr.
type Process struct {
	Name   string
	Cmd    *exec.Cmd
	Ended  chan struct{} // closed at the end
	Stdout bytes.Buffer  // to be read then

	mu        sync.Mutex
	lines     []string
	lineAdded chan struct{} // closed, and made anew, with each line
}

// Start starts a program of ours; it is killed at the end of the test if it still runs.
func (p Programs) Start(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	return Start(t, exec.Command(filepath.Join(string(p), program), args...))
}

// Start starts any program; it is killed at the end of the test if it still runs.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	q := &Process{
		Name: filepath.Base(cmd.Path) + " " + strings.Join(cmd.Args[1:], " "), Cmd: cmd, Ended: make(chan struct{}),
		lineAdded: make(chan struct{}),
	}
	q.Cmd.Stdout = &q.Stdout
	stderr, err := q.Cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(q.Ended)
		q.follow(stderr)
		_ = q.Cmd.Wait() // the exit code tells
	}()
	t.Cleanup(func() {
		q.Kill()
		if t.Failed() {
			t.Logf("%s\n%s", q.Name, q.Log())
		}
	})
	return q
}

func (p *Process) follow(stderr io.Reader) {
	s := bufio.NewScanner(stderr)
	for s.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		close(p.lineAdded)
		p.lineAdded = make(chan struct{})
		p.mu.Unlock()
	}
}

// Log returns all that the program has logged so far.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n") + "\n"
}

// Await returns the first line of the log that holds a text, once it is there.
func (p *Process) Await(t testing.TB, text string) string {
	t.Helper()
	return p.AwaitFor(t, Patience, text)
}

// AwaitFor is Await with a patience of its own.
func (p *Process) AwaitFor(t testing.TB, long time.Duration, text string) string {
	t.Helper()
	deadline := time.After(long)
	for seen := 0; ; {
		p.mu.Lock()
		fresh, more := p.lines[seen:], p.lineAdded
		p.mu.Unlock()
		for _, line := range fresh {
			if strings.Contains(line, text) {
				return line
			}
		}
		seen += len(fresh)
		select {
		case <-more:
		case <-p.Ended:
			if !strings.Contains(p.Log(), text) {
				t.Fatalf("%s ended without %q:\n%s", p.Name, text, p.Log())
			}
		case <-deadline:
			t.Fatalf("%s does not say %q:\n%s", p.Name, text, p.Log())
		}
	}
}

// Stop sends a signal, and wants the program to end with a code soon.
func (p *Process) Stop(t testing.TB, s syscall.Signal, code int) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	p.Wait(t, code)
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

// Kill ends the program as a power cut would, and returns when it is gone. It may be called again.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may have ended by itself
	<-p.Ended
}
