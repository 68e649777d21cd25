package testbed

import (
	"fmt"
	"os"
	"os/exec"
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

// run starts a program with a log of its own.
func (b *bed) run(name, program string, args ...string) error {
	log, err := os.Create(b.path(name + ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, b.Dir
	ownGroup(cmd) // a Ctrl-C is for us: we stop them in order
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p := &process{name, cmd, make(chan struct{})}
	b.processes = append(b.processes, p)
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.done)
		select {
		case b.ended <- name:
		default:
		}
	}()
	return nil
}

// stop ends all, the last one first, each group when the one before is gone:
// agents can so say goodbye to a broker that is still there.
func (b *bed) stop() {
	agents := b.processes[min(3, len(b.processes)):]
	var all sync.WaitGroup
	for _, p := range agents {
		all.Go(p.stop)
	}
	all.Wait()
	close(b.stopped)
	<-b.grown
	for i := min(3, len(b.processes)) - 1; i >= 0; i-- {
		b.processes[i].stop()
	}
}

// stop asks a process to end, and kills it if it does not.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		fmt.Fprintln(os.Stderr, "testbed:", p.name, "does not stop, and is killed")
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}
