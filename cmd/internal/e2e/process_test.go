package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/brokers"
)

// patience bounds what takes some seconds at most.
const patience = time.Minute

var programDir string

// TestMain builds the programs once.
func TestMain(m *testing.M) {
	brokers.ServeIfAsked()
	code := 1
	defer func() { os.Exit(code) }()
	var err error
	if programDir, err = os.MkdirTemp("", "fedmesh-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer os.RemoveAll(programDir)
	build := exec.Command("go", "build", "-o", programDir, "./cmd/agentd", "./cmd/coordinator")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return
	}
	code = m.Run()
}

// run runs a command line of ours to its end.
func run(t *testing.T, program string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programDir, program), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// mustRun returns the output of a command that must do its work.
func mustRun(t *testing.T, program string, args ...string) string {
	t.Helper()
	code, stdout, stderr := run(t, program, args...)
	if code != 0 {
		t.Fatalf("%s %v: exit %d\n%s", program, args, code, stderr)
	}
	return stdout
}

// process is a program of ours that runs, with what it logs.
type process struct {
	name   string
	cmd    *exec.Cmd
	ended  chan struct{}
	mu     sync.Mutex
	lines  []string
	more   chan struct{} // closed, and made anew, with each line
	stdout bytes.Buffer  // to be read after the end
}

// start starts a program; it is killed with the test, if it runs still.
func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{
		name: program + " " + strings.Join(args, " "), cmd: exec.Command(filepath.Join(programDir, program), args...),
		ended: make(chan struct{}), more: make(chan struct{}),
	}
	p.cmd.Stdout = &p.stdout
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.follow(stderr)
		_ = p.cmd.Wait() // the exit code tells
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s\n%s", p.name, p.log())
		}
	})
	return p
}

func (p *process) follow(stderr io.Reader) {
	s := bufio.NewScanner(stderr)
	for s.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n") + "\n"
}

// await returns the first line that holds a text.
func (p *process) await(t *testing.T, text string) string {
	t.Helper()
	return p.awaitFor(t, patience, text)
}

func (p *process) awaitFor(t *testing.T, long time.Duration, text string) string {
	t.Helper()
	deadline := time.After(long)
	for seen := 0; ; {
		p.mu.Lock()
		fresh, more := p.lines[seen:], p.more
		p.mu.Unlock()
		for _, line := range fresh {
			if strings.Contains(line, text) {
				return line
			}
		}
		seen += len(fresh)
		select {
		case <-more:
		case <-p.ended:
			if !strings.Contains(p.log(), text) {
				t.Fatalf("%s ended without %q:\n%s", p.name, text, p.log())
			}
		case <-deadline:
			t.Fatalf("%s does not say %q:\n%s", p.name, text, p.log())
		}
	}
}

// stop sends a signal, and wants the program to end with a code soon.
func (p *process) stop(t *testing.T, s syscall.Signal, code int) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	p.wait(t, code)
}

func (p *process) wait(t *testing.T, code int) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("%s does not end:\n%s", p.name, p.log())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("%s: exit %d, want %d:\n%s", p.name, got, code, p.log())
	}
}
