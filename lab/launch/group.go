package launch

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
)

// Group is a set of members of a federation that run together: processes, and functions in this process. Its context
// ends when the first member ends, or with the caller's context. Start, Go and Stop must be called by one goroutine.
type Group struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc
	running   sync.WaitGroup
	processes []*Process
}

// NewGroup returns a group without members.
func NewGroup(ctx context.Context) *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g
}

// Context returns the context of the group. Its cause is the error of the member that ended first.
func (g *Group) Context() context.Context { return g.ctx }

// Go runs a function as a member of the group. The function must return when its context ends.
func (g *Group) Go(name string, run func(context.Context) error) {
	g.running.Go(func() {
		err := run(g.ctx)
		if err == nil {
			err = errors.New("ended before the run was finished")
		}
		g.cancel(fmt.Errorf("%s: %w", name, err)) // Only the first call of cancel sets the cause.
	})
}

// Start starts a process. It runs until Stop, even after the context of the group has ended.
func (g *Group) Start(cmd *exec.Cmd, o Options) (*Process, error) {
	p, err := Start(cmd, o)
	if err != nil {
		return nil, err
	}
	g.processes = append(g.processes, p)
	g.running.Go(func() {
		<-p.Ended
		g.cancel(p.endError())
	})
	return p, nil
}

// Stop ends the context of the group, kills the processes that still run, and waits for all members. To end processes
// in order, the caller must terminate them before.
func (g *Group) Stop() {
	g.cancel(nil)
	for _, p := range g.processes {
		p.Kill()
	}
	g.running.Wait()
}
