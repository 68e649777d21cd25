package replica

import (
	"context"
	"slices"
	"sync"

	"github.com/fedmesh/fedmesh/host"
)

// fairLock lets one in at a time, in the order in which they come. It waits in the runtime's time, as a mutex would
// not.
type fairLock struct {
	mu               sync.Mutex
	holderAndWaiters []host.JobWaiter // who is in, and who waits
}

// lock returns when the caller is in, who must leave then. The error is that of ctx.
func (g *fairLock) lock(ctx context.Context, rt host.JobRuntime) error {
	w := rt.NewWaiter()
	g.mu.Lock()
	g.holderAndWaiters = append(g.holderAndWaiters, w)
	g.mu.Unlock()
	for {
		g.mu.Lock()
		first := g.holderAndWaiters[0] == w
		if !first && ctx.Err() != nil {
			g.holderAndWaiters = slices.DeleteFunc(g.holderAndWaiters, func(x host.JobWaiter) bool { return x == w })
		}
		g.mu.Unlock()
		if first {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.Wait(ctx, rt.Now().Add(lookEvery), nil)
	}
}

// tryLock reports whether the caller is in, at once.
func (g *fairLock) tryLock(rt host.JobRuntime) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.holderAndWaiters) > 0 {
		return false
	}
	g.holderAndWaiters = append(g.holderAndWaiters, rt.NewWaiter())
	return true
}

func (g *fairLock) unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holderAndWaiters = g.holderAndWaiters[1:]; len(g.holderAndWaiters) > 0 {
		g.holderAndWaiters[0].Wake()
	}
}
