package brokers

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience bounds each wait for a process; no test waits that long.
const patience = 2 * time.Minute

// process is a broker's program. It has a folder of its own, and an address
// that it gets back when it is started again.
type process struct {
	// Dir is the broker's folder, and Address the host:port that it listens on.
	Dir, Address string

	ready   string // the end of the line of its log that says that it runs
	command func() *exec.Cmd
	kill    func() // nil = the program alone
	log     func(*exec.Cmd) (io.ReadCloser, error)
	check   func(t testing.TB, line string)
	cmd     *exec.Cmd
	lines   chan string // of its log; closed at its end
}

// newProcess finds a free port and makes the folder. Nothing runs yet. With -short the test is skipped.
func newProcess(t testing.TB) process {
	t.Helper()
	if testing.Short() {
		t.Skip("a broker is a process: -short runs none")
	}
	return process{Dir: t.TempDir(), Address: FreeAddress(t), ready: " running", check: func(testing.TB, string) {}}
}

// FreeAddress returns a loopback address where nobody listens. Its port is not
// among those that the system gives to clients: one of a thousand that come
// back to a broker could get it, and even connect to itself.
func FreeAddress(t testing.TB) string {
	t.Helper()
	draw := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(time.Now().UnixNano())))
	for range 100 {
		listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10000+draw.IntN(20000)))
		if err == nil {
			_ = listener.Close()
			return listener.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
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
	p.cmd = p.command()
	output, err := p.log(p.cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.lines = make(chan string, 10000)
	go func(lines chan<- string) {
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			select {
			case lines <- scanner.Text():
			default: // more than anyone looks at
			}
		}
	}(p.lines)
	t.Cleanup(p.Kill)
	p.Await(t, p.ready)
}

// Await returns when the log has a line with this end.
func (p *process) Await(t testing.TB, end string) {
	t.Helper()
	late, last := time.After(patience), ""
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				t.Fatalf("%s ended; the end of its log is %q", p.cmd.Path, last)
			}
			last = line
			p.check(t, line)
			if strings.HasSuffix(line, end) {
				return
			}
		case <-late:
			t.Fatalf("%s does not say %q", p.cmd.Path, end)
		}
	}
}

// Signal sends the broker a signal.
func (p *process) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the broker as a power cut would. It may be called again.
func (p *process) Kill() {
	if p.kill != nil {
		p.kill()
	} else {
		_ = p.cmd.Process.Kill()
	}
	p.wait()
}

// wait returns when the process has ended.
func (p *process) wait() {
	for range p.lines { // the end of the log is the end of the process
		continue
	}
	_ = p.cmd.Wait()
}

// Memory returns a line of the process's status, such as VmHWM, its largest
// resident set so far, in bytes. It needs Linux.
func (p *process) Memory(t testing.TB, line string) int {
	t.Helper()
	return memoryOf(t, strconv.Itoa(p.cmd.Process.Pid), line)
}

// memoryOf is that of a process.
func memoryOf(t testing.TB, pid, line string) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), line+":")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// OpenFiles returns how many descriptors the process has open. It needs Linux.
func (p *process) OpenFiles(t testing.TB) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// CPU is the processor time that the broker has used so far, in Linux's ticks of 10 ms.
func (p *process) CPU(t testing.TB) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the program's name ends here
	fields := strings.Fields(after)
	var ticks time.Duration
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}
