package launch

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is the time that Terminate gives a program to end before it kills the program.
const stopTimeout = 20 * time.Second

// Options are options of Start.
type Options struct {
	Name     string            // name of the process in errors; "" means the command line
	LogFile  string            // file to which the output is appended; "" keeps the output in memory
	OnLine   func(line string) // called with each output line if the output is kept in memory; may be nil
	MaxLines int               // maximum number of lines kept in memory; 0 means no limit
	OwnGroup bool              // true to run in a new process group, which does not receive signals from the terminal
}

// Process is a running or ended program that Start has started.
type Process struct {
	Name  string
	Cmd   *exec.Cmd
	Ended chan struct{} // closed when the program has ended and its output has been read completely

	options Options
	err     error // result of Cmd.Wait, valid after Ended is closed

	mu        sync.Mutex
	lines     []string
	lineAdded chan struct{} // closed and replaced when a line is added
}

// Start starts a program. Standard output and standard error go to the log, unless cmd has a writer for them.
func Start(cmd *exec.Cmd, o Options) (*Process, error) {
	name := strings.Join(append([]string{filepath.Base(cmd.Path)}, cmd.Args[1:]...), " ")
	p := &Process{Name: cmp.Or(o.Name, name), Cmd: cmd, Ended: make(chan struct{}), options: o,
		lineAdded: make(chan struct{})}
	log, output, err := p.openLog()
	if err != nil {
		return nil, err
	}
	for _, w := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		if *w == nil {
			*w = output
		}
	}
	if o.OwnGroup {
		setOwnGroup(cmd)
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", p.Name, err), log.Close(), output.Close())
	}
	_ = output.Close() // Close our copy, because the program has its own copy of the file descriptor.
	go func() {
		defer close(p.Ended)
		p.follow(log)
		p.err = cmd.Wait()
		_ = log.Close() // Close the reader of the pipe, which has reached its end.
	}()
	return p, nil
}

// openLog returns the file to which the program writes its output, and a reader of that output. If the output goes to a
// log file, the reader is empty.
func (p *Process) openLog() (log io.ReadCloser, output *os.File, err error) {
	if p.options.LogFile == "" {
		return os.Pipe()
	}
	output, err = os.OpenFile(p.options.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return io.NopCloser(strings.NewReader("")), output, err
}

// follow reads log to the end and adds each line to p.
func (p *Process) follow(log io.Reader) {
	for r := bufio.NewReader(log); ; {
		line, err := r.ReadString('\n')
		if line = strings.TrimSuffix(line, "\n"); line != "" || err == nil {
			p.add(line)
		}
		if err != nil {
			return
		}
	}
}

func (p *Process) add(line string) {
	p.mu.Lock()
	p.lines = append(p.lines, line)
	if most := p.options.MaxLines; most > 0 {
		p.lines = p.lines[max(0, len(p.lines)-most):]
	}
	close(p.lineAdded)
	p.lineAdded = make(chan struct{})
	p.mu.Unlock()
	if p.options.OnLine != nil {
		p.options.OnLine(line)
	}
}

// Log returns the output of the program so far.
func (p *Process) Log() string {
	if p.options.LogFile != "" {
		text, _ := os.ReadFile(p.options.LogFile) // If the file does not exist, the log is empty.
		return string(text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n") + "\n"
}

// AwaitLine waits until a log line with an index of at least from matches, and returns that line and the next index.
// AwaitLine requires that all lines are kept in memory.
func (p *Process) AwaitLine(ctx context.Context, from int, match func(line string) bool) (line string, next int,
	err error) {
	for ended := false; ; {
		p.mu.Lock()
		fresh, added := p.lines[from:], p.lineAdded
		p.mu.Unlock()
		for _, line := range fresh {
			if from++; match(line) {
				return line, from, nil
			}
		}
		if ended {
			return "", from, p.endError()
		}
		select {
		case <-added:
		case <-p.Ended:
			ended = true // Check once more: lines may have arrived before the end.
		case <-ctx.Done():
			return "", from, fmt.Errorf("%s: waiting for a log line: %w", p.Name, context.Cause(ctx))
		}
	}
}

// endError returns an error with the end of the log and the exit status. endError must be called after the program has
// ended.
func (p *Process) endError() error {
	log := p.Log()
	return fmt.Errorf("%s ended:\n%s\n%s", p.Name, log[max(0, len(log)-2000):], p.Cmd.ProcessState)
}

// Wait waits until the program ends and returns the error of exec.Cmd.Wait. If ctx ends first, it terminates the
// program.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.Ended:
	case <-ctx.Done():
		if err := p.Terminate(); err != nil {
			return err
		}
	}
	return p.err
}

// Terminate sends SIGTERM to the program and waits until it has ended. After stopTimeout it kills the program and
// returns an error.
func (p *Process) Terminate() error {
	if p.Cmd.Process.Signal(syscall.SIGTERM) != nil {
		_ = p.Cmd.Process.Kill()
	}
	select {
	case <-p.Ended:
		return nil
	case <-time.After(stopTimeout):
		p.Kill()
		return fmt.Errorf("%s did not stop in time and was killed", p.Name)
	}
}

// Kill kills the program, or its whole process group if it has its own, and waits until it has ended. Further calls
// have no effect.
func (p *Process) Kill() {
	select {
	case <-p.Ended:
		return
	default:
	}
	if p.options.OwnGroup {
		killGroup(p.Cmd)
	} else {
		_ = p.Cmd.Process.Kill() // ignore the error: the program may have ended already
	}
	<-p.Ended
}

// KeepRunning starts a program and, after a pause, restarts it whenever it ends. stop terminates the program, and
// onError is called if a restart or the termination fails.
func KeepRunning(pause time.Duration, start func() (*Process, error), onError func(error)) (stop func(), err error) {
	p, err := start()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		var err error // Do not assign to the named result err of KeepRunning.
		for err == nil {
			select {
			case <-ctx.Done():
				if err := p.Terminate(); err != nil {
					onError(err)
				}
				return
			case <-p.Ended:
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			p, err = start()
		}
		onError(err)
	})
	return func() {
		cancel()
		running.Wait()
	}, nil
}
