package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// process is one that runs.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
}

// run starts a program with a log of its own. env is added to the environment.
func (b *bed) run(name string, env []string, program string, args ...string) (*process, error) {
	return b.runTo(b.ended, name, env, program, args...)
}

// runTo is run of a program whose end is told to a channel. Its log is added to one that is there.
func (b *bed) runTo(ended chan<- string, name string, env []string, program string, args ...string) (*process, error) {
	log, err := os.OpenFile(b.path(name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = log, log, b.Dir, append(os.Environ(), env...)
	ownGroup(cmd) // a Ctrl-C is for us: we stop them in order
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &process{name, cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.done)
		select {
		case ended <- name:
		default:
		}
	}()
	return p, nil
}

// stop ends all, the agents first: they can so say goodbye to a broker that is still there.
func (b *bed) stop() {
	var all sync.WaitGroup
	for _, p := range b.agents {
		all.Go(p.stop)
	}
	all.Wait()
	close(b.stopped)
	for _, end := range slices.Backward(b.kept) { // the coordinators before what keeps their state
		end()
	}
	<-b.grown
	for _, p := range slices.Backward(b.services) {
		p.stop()
	}
	if b.embedded != nil {
		_ = b.embedded.Close() // nobody is connected any more
	}
}

// stop asks a process to end, and kills it if it does not.
func (p *process) stop() {
	if p.cmd.Process.Signal(syscall.SIGTERM) != nil { // it has ended by itself, or the system has no signals
		_ = p.cmd.Process.Kill()
	}
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		fmt.Fprintln(os.Stderr, "fedlab up:", p.name, "does not stop, and is killed")
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}
