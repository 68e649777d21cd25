package agent

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/host"
)

// Turn is the right to train, of which a device has one. The agents of its federations share it: one of them takes
// local steps at a time. Of those that wait, the one that has trained least goes first, and of equals the one that has
// waited longest. The holder gives the turn away between two local steps: after a stretch if another one that waits
// has trained no more, and at once if that one is a stretch behind. Its zero value is ready.
type Turn struct {
	waiting atomic.Int32 // the length of queue, to be read at each local step

	mu      sync.Mutex
	holder  *hold
	queue   []*hold       // in the order in which they came
	since   time.Time     // the holder has it
	counted time.Time     // its time before is in used
	least   time.Duration // the least used of those that train or wait; never less than it was
}

// Share is what a federation has of its device's turn.
type Share struct {
	turn *Turn
	name string
	used time.Duration // with the turn, or what counts as much
}

// NewShare makes the share of a federation, which is told by its name to those that wait.
func (t *Turn) NewShare(name string) *Share { return &Share{turn: t, name: name} }

const (
	// stretch is how long who trains keeps the turn. To give it away costs microseconds, but a block that waits keeps
	// its parameters in memory.
	stretch = time.Second
	// tellAfter is the time after which a wait is told.
	tellAfter = 100 * time.Millisecond
)

// hold is the turn as one job takes it and gives it back.
type hold struct {
	*Share
	host.Runtime
	waiter host.Waiter
	tell   func(TurnAwaited)
	waited time.Duration // in all; its goroutine's
}

func (a *Agent) newHold() *hold {
	return &hold{Share: a.cfg.Share, Runtime: a.owner.Runtime, waiter: a.owner.NewWaiter(),
		tell: func(f TurnAwaited) { a.owner.Tell(func() { a.cfg.Observer.Observe(f) }) }}
}

// between is called between two local steps.
func (h *hold) between(ctx context.Context) {
	if h.turn.waiting.Load() > 0 {
		_ = h.take(ctx) // the job finds that ctx has ended
	}
}

// take waits for the turn. The holder keeps it, or gives it away and waits for it. The error is that ctx has ended, and
// another one has the turn.
func (h *hold) take(ctx context.Context) error {
	t := h.turn
	t.mu.Lock()
	now := h.Now()
	t.count(now)
	if t.holder == h && t.due(now) {
		t.pass(now)
	}
	if t.holder == h {
		t.mu.Unlock()
		return nil
	}
	h.used = max(h.used, t.least-stretch) // who did not want to train has saved no more
	t.queue = append(t.queue, h)
	if t.holder == nil {
		t.pass(now)
		t.mu.Unlock()
		return nil
	}
	t.waiting.Store(int32(len(t.queue)))
	t.mu.Unlock()
	return h.await(ctx, now)
}

// await waits in the queue.
func (h *hold) await(ctx context.Context, began time.Time) error {
	t, until := h.turn, began.Add(tellAfter)
	for {
		h.waiter.Wait(ctx, until, nil)
		now := h.Now()
		t.mu.Lock()
		holder, err := t.holder, ctx.Err()
		if holder != h && err != nil {
			t.queue = slices.DeleteFunc(t.queue, func(other *hold) bool { return other == h })
			t.waiting.Store(int32(len(t.queue)))
		}
		t.mu.Unlock()
		switch {
		case holder == h || err != nil:
			h.waited += now.Sub(began)
			if until.IsZero() {
				h.tell(TurnAwaited{Waited: now.Sub(began)})
			}
			if holder == h {
				return nil
			}
			return err
		case !until.IsZero() && !now.Before(until):
			until = time.Time{}
			h.tell(TurnAwaited{By: holder.name})
		}
	}
}

// release gives the turn back, if the job has it.
func (h *hold) release() {
	t := h.turn
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == h {
		now := h.Now()
		t.count(now)
		t.pass(now)
	}
}

// count counts the time that the holder has trained.
func (t *Turn) count(now time.Time) {
	if t.holder == nil {
		return
	}
	t.holder.used += now.Sub(t.counted)
	t.counted = now
	least := t.holder.used
	for _, h := range t.queue {
		least = min(least, h.used)
	}
	t.least = max(t.least, least)
}

// first is the place of the one in the queue that is next; below 0 if nobody waits.
func (t *Turn) first() int {
	next := -1
	for i, h := range t.queue {
		if next < 0 || h.used < t.queue[next].used {
			next = i
		}
	}
	return next
}

// due reports whether the holder has to give the turn away. A federation that is a stretch behind does not wait for
// the end of the holder's: it would be two behind then, and the holder would wait for as long.
func (t *Turn) due(now time.Time) bool {
	i := t.first()
	if i < 0 {
		return false
	}
	ahead := t.holder.used - t.queue[i].used
	return ahead >= stretch || ahead >= 0 && now.Sub(t.since) >= stretch
}

// pass gives the turn to the next one, if there is one.
func (t *Turn) pass(now time.Time) {
	i := t.first()
	if i < 0 {
		t.holder = nil
		return
	}
	t.holder, t.since, t.counted = t.queue[i], now, now
	t.queue = slices.Delete(t.queue, i, i+1)
	t.waiting.Store(int32(len(t.queue)))
	t.holder.waiter.Wake()
}
