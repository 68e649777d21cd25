package replica

import (
	"context"
	"slices"
	"sync"

	"github.com/fedmesh/fedmesh/host"
)

// fairLock is a mutual exclusion lock that is granted in the order of the requests. Unlike a sync.Mutex, it waits on
// the clock of a host.JobRuntime.
type fairLock struct {
	mu               sync.Mutex
	holderAndWaiters []host.JobWaiter // the holder, followed by the waiters in order
}

// lock acquires the lock. It returns the cause of ctx if ctx ends first. The caller must call unlock only if lock
// returns nil.
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

// tryLock acquires the lock if it is free. It returns at once and reports success.
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
