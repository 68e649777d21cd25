package interop

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for something that is certain to come.
const patience = 2 * time.Minute

// process is a running program; what it prints is kept by line.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and all it printed is here

	mu    sync.Mutex
	lines []string
	news  chan struct{} // closed with the next line
}

// start runs a program until the end of the test. Then it must end within patience, and without an error.
func start(t *testing.T, name, program string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(program, args...), done: make(chan struct{}), news: make(chan struct{})}
	out, in := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = in, in
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go p.read(out)
	ended := make(chan error, 1)
	go func() {
		err := p.cmd.Wait()
		_ = in.Close() // never fails
		<-p.done
		ended <- err
	}()
	t.Cleanup(func() { p.end(t, ended) })
	return p
}

func (p *process) read(out io.Reader) {
	defer close(p.done)
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		p.mu.Lock()
		p.lines = append(p.lines, strings.TrimSuffix(line, "\n"))
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
}

func (p *process) end(t *testing.T, ended chan error) {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("%s had ended already: %v", p.name, err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	case <-time.After(patience):
		t.Errorf("%s does not end", p.name)
		_ = p.cmd.Process.Kill() // it may have ended meanwhile
		<-p.done
	}
	if t.Failed() {
		t.Logf("%s printed:\n%s", p.name, clip(strings.Join(p.lines, "\n")))
	}
}

// clip keeps the end of a long text.
func clip(s string) string {
	const most = 8 << 10
	return s[max(0, len(s)-most):]
}

// await returns the first line that has the text, once it is printed.
func (p *process) await(t *testing.T, text string) string {
	t.Helper()
	deadline := time.After(patience)
	for from := 0; ; {
		p.mu.Lock()
		lines, news := p.lines[from:], p.news
		p.mu.Unlock()
		for _, line := range lines {
			if strings.Contains(line, text) {
				return line
			}
		}
		from += len(lines)
		select {
		case <-news:
		case <-p.done:
			t.Fatalf("%s ended without %q", p.name, text)
		case <-deadline:
			t.Fatalf("%s does not print %q", p.name, text)
		}
	}
}

// event is a line of a daemon's log.
type event struct {
	Msg, Agent      string
	Round, Accepted int
	Norm, Risk      float64
}

// events returns the lines of a daemon's log with one of the messages.
func (p *process) events(t *testing.T, msgs ...string) []event {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []event
	for _, line := range p.lines {
		for _, msg := range msgs {
			if !strings.Contains(line, `"msg":"`+msg+`"`) {
				continue
			}
			var e event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%s: %v in %s", p.name, err, line)
			}
			found = append(found, e)
		}
	}
	return found
}
