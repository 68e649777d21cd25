package external

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"
)

// process is a running process of an external program.
type process struct {
	programInput     io.WriteCloser
	programOutput    io.ReadCloser // output of the program, closed by the goroutine that reads it
	unconfinedReason string        // reason why the program has no sandbox; empty if it has one
	terminate        func()        // ends the process; called only once, by kill
	exited           chan struct{} // closed after the process has ended and was waited for
	once             sync.Once
	exitErr          error // exit error of the process; valid after exited is closed
}

// launch starts the program's command in a sandbox, as far as the system and the agent's permissions allow.
func launch(p *program) (*process, error) {
	cage, loose := newSandbox(&p.cfg)
	proc, err := launchInSandbox(p, cage)
	if err != nil && loose == "" && cage.mayRunUnconfined() {
		why := err.Error()
		cage.remove()
		proc, err = launchInSandbox(p, noSandbox)
		loose = why
	}
	if err != nil {
		cage.remove()
		return nil, err
	}
	proc.unconfinedReason = loose
	return proc, nil
}

func launchInSandbox(p *program, in sandbox) (*process, error) {
	cmd := exec.Command(p.cfg.Command[0], p.cfg.Command[1:]...)
	cmd.Dir, cmd.Env = p.cfg.Dir, programEnvironment(p.cfg.Env)
	in.applyTo(cmd)
	var files [6]*os.File // read and write ends of the pipes for stdin, stdout and stderr
	var err error
	for i := 0; i < len(files) && err == nil; i += 2 {
		files[i], files[i+1], err = os.Pipe()
	}
	closeAll := func(which ...int) {
		for _, i := range which {
			if files[i] != nil {
				_ = files[i].Close() // Ignore the error: no data can be lost.
			}
		}
	}
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[3], files[5]
		err = cmd.Start()
	}
	closeAll(0, 3, 5)
	if err != nil {
		closeAll(1, 2, 4)
		return nil, err
	}
	proc := &process{programInput: files[1], programOutput: files[2], exited: make(chan struct{})}
	proc.terminate = func() {
		killAll(cmd)
		in.kill()
		go func() {
			<-proc.exited
			// A child process outside the sandbox may still hold the write end of the pipe.
			for _, from := range []*os.File{files[2], files[4]} {
				// Ignore the error: setting the deadline fails only if the pipe is closed.
				_ = from.SetReadDeadline(time.Now().Add(programStopGrace))
			}
			in.remove()
		}()
	}
	go p.logStderr(files[4])
	go func() {
		proc.exitErr = cmd.Wait()
		close(proc.exited)
		proc.kill() // Kill the remaining child processes too.
	}()
	return proc, nil
}

// kill kills the process with all its child processes. Repeated calls have no effect.
func (p *process) kill() { p.once.Do(p.terminate) }

// halfCloseSocket is a Unix socket connection whose Close method closes only the sending direction.
type halfCloseSocket struct{ *net.UnixConn }

// Close implements io.Closer.
func (s halfCloseSocket) Close() error { return s.CloseWrite() }

// connectSocket connects to a program that runs independently of the agent. Killing the returned process only closes
// the connection.
func connectSocket(p *program) (*process, error) {
	conn, err := net.DialTimeout("unix", p.cfg.SocketPath, programStopGrace)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the trainer: %w", err)
	}
	proc := &process{programInput: halfCloseSocket{conn.(*net.UnixConn)}, programOutput: conn,
		exited:           make(chan struct{}),
		unconfinedReason: "the trainer is an independent process at socket " + p.cfg.SocketPath}
	proc.terminate = func() {
		_ = conn.Close() // Ignore the error: no further requests follow.
		close(proc.exited)
	}
	return proc, nil
}

// describeExit returns a description of the process's exit status. It returns "" if the process does not exit within
// programStopGrace.
func (p *process) describeExit() string {
	select {
	case <-p.exited:
	case <-time.After(programStopGrace):
		return ""
	}
	var exit *exec.ExitError
	if errors.As(p.exitErr, &exit) && exit.ExitCode() >= 0 {
		return " (" + exit.Error() + ")"
	}
	return ""
}

// programEnvironment returns the environment variables of a program. It omits most variables of the agent, which may
// contain secrets.
func programEnvironment(more []string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env, more...)
}

// maxStderrBytes is the maximum number of bytes per minute that are logged from a program's standard error.
const maxStderrBytes = 16 << 10

// logStderr logs the lines that a program writes to its standard error, up to maxStderrBytes per minute.
func (p *program) logStderr(from *os.File) {
	defer from.Close()
	lines := bufio.NewReaderSize(from, 4096)
	left, until, dropped := maxStderrBytes, time.Now().Add(time.Minute), 0
	for {
		line, err := lines.ReadSlice('\n')
		if now := time.Now(); !now.Before(until) {
			p.logDroppedBytes(dropped)
			left, until, dropped = maxStderrBytes, now.Add(time.Minute), 0
		}
		if len(line) > left {
			left, dropped = 0, dropped+len(line)
		} else if len(line) > 0 {
			left -= len(line)
			p.context.log.Info("trainer: "+textPrefix(string(line[:len(line)-lineEndLength(line)]), 1000), "trainer",
				p.trainerName)
		}
		// The output has ended, or the read deadline after the exit has passed.
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			p.logDroppedBytes(dropped)
			return
		}
	}
}

// logDroppedBytes logs how many bytes of a program's output were not logged. It does nothing if bytes is 0.
func (p *program) logDroppedBytes(bytes int) {
	if bytes > 0 {
		p.context.log.Warn("trainer output exceeds the log limit and was truncated", "trainer", p.trainerName,
			"bytes_dropped", bytes)
	}
}

// lineEndLength returns 1 if the line ends with a newline, and 0 otherwise.
func lineEndLength(line []byte) int {
	if len(line) > 0 && line[len(line)-1] == '\n' {
		return 1
	}
	return 0
}
