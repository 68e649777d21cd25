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

// patience bounds each wait for a process; no test waits that long.
const patience = 2 * time.Minute

// process is a broker's program. It has a folder of its own, and an address
// that it gets back when it is started again.
type process struct {
	// Dir is the broker's folder, and Address the host:port that it listens on.
	Dir, Address string

	ready    string // suffix of the log line of a broker that is ready
	command  func() *exec.Cmd
	ownGroup bool // its children are killed, too
	check    func(t testing.TB, line string)
	*launch.Process
	lineCount int // lines of the log that Await has read
}

// newProcess finds a free port and makes the folder. Nothing runs yet. With -short the test is skipped.
func newProcess(t testing.TB) process {
	t.Helper()
	if testing.Short() {
		t.Skip("a broker is a process: -short runs none")
	}
	return process{Dir: t.TempDir(), Address: FreeAddress(t), ready: " running", check: func(testing.TB, string) {}}
}

// FreeAddress returns a loopback address without a server.
func FreeAddress(t testing.TB) string {
	t.Helper()
	free, err := launch.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return free[0]
}

// Write puts a file into the folder.
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

// Start returns when the broker says that it runs. It is killed at the end of
// the test.
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

// Await returns when the log has a new line with this end.
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

// Signal sends the broker a signal.
func (p *process) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Memory returns a line of the process's status, such as VmHWM, its largest
// resident set so far, in bytes. It needs Linux.
func (p *process) Memory(t testing.TB, line string) int {
	t.Helper()
	return memoryOf(t, p.Cmd.Process.Pid, line)
}

// memoryOf is that of a process.
func memoryOf(t testing.TB, pid int, line string) int {
	t.Helper()
	bytes := launch.Memory(pid, "status", line)
	if bytes == 0 {
		t.Fatalf("process %d has no %s", pid, line)
	}
	return bytes
}

// OpenFiles returns how many descriptors the process has open. It needs Linux.
func (p *process) OpenFiles() int { return launch.OpenFiles(p.Cmd.Process.Pid) }

// CPU is the processor time that the broker has used so far. It needs Linux.
func (p *process) CPU() time.Duration { return launch.CPUTime(p.Cmd.Process.Pid) }
