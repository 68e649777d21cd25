package brokers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/lab/launch"
)

// patience is the timeout of each wait for a process.
const patience = 2 * time.Minute

// process is an MQTT broker that runs as a separate process. The broker keeps its folder and its address across
// restarts.
type process struct {
	// Dir is the broker's folder. Address is the listening address as host:port.
	Dir, Address string

	ready    string // suffix of the log line with which the broker reports that it is ready
	command  func() *exec.Cmd
	ownGroup bool // true if the process has its own process group, so that killing the group also kills child processes
	check    func(t testing.TB, line string)
	*launch.Process
	lineCount int // number of log lines that Await has already read
}

// newProcess creates the broker's folder and selects a free port. newProcess does not start the broker. In -short mode
// it skips the test.
func newProcess(t testing.TB) process {
	t.Helper()
	if testing.Short() {
		t.Skip("a broker is a process: -short runs none")
	}
	return process{Dir: t.TempDir(), Address: FreeAddress(t), ready: " running", check: func(testing.TB, string) {}}
}

// FreeAddress returns a loopback address (host:port) with an unused TCP port.
func FreeAddress(t testing.TB) string {
	t.Helper()
	free, err := launch.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return free[0]
}

// Write writes a file into the broker's folder.
func (p *process) Write(t testing.TB, name string, data []byte) {
	t.Helper()
	path := filepath.Join(p.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Start starts the broker process and waits until the broker is ready. The process is killed at the end of the test.
func (p *process) Start(t testing.TB) {
	t.Helper()
	var err error
	if p.Process, err = launch.Start(p.command(), launch.Options{OwnGroup: p.ownGroup}); err != nil {
		t.Fatal(err)
	}
	p.lineCount = 0
	t.Cleanup(p.Kill)
	p.Await(t, p.ready)
}

// Await waits for a new line of the broker's log that ends with the given text.
func (p *process) Await(t testing.TB, end string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	if _, p.lineCount, err = p.AwaitLine(ctx, p.lineCount, func(line string) bool {
		p.check(t, line)
		return strings.HasSuffix(line, end)
	}); err != nil {
		t.Fatalf("no line that ends in %q: %v", end, err)
	}
}

// Signal sends a signal to the broker process.
func (p *process) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Memory returns a memory value of the broker process in bytes. line is the name of a line in /proc/PID/status, such as
// VmHWM (peak resident memory). Memory works only on Linux.
func (p *process) Memory(t testing.TB, line string) int {
	t.Helper()
	return memoryOf(t, p.Cmd.Process.Pid, line)
}

// memoryOf returns the value of the given line in /proc/PID/status, in bytes.
func memoryOf(t testing.TB, pid int, line string) int {
	t.Helper()
	bytes := launch.Memory(pid, "status", line)
	if bytes == 0 {
		t.Fatalf("process %d has no %s", pid, line)
	}
	return bytes
}

// OpenFiles returns the number of open file descriptors of the broker process. OpenFiles works only on Linux.
func (p *process) OpenFiles() int { return launch.OpenFiles(p.Cmd.Process.Pid) }

// CPU returns the CPU time that the broker process has used so far. CPU works only on Linux.
func (p *process) CPU() time.Duration { return launch.CPUTime(p.Cmd.Process.Pid) }
