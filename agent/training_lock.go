package agent

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
)

// TrainingLock is the right to train, of which a device has one. The agents of its federations share it: one of them
// takes local steps at a time. Of those that wait, the one that has trained least goes first, and of equals the one
// that has waited longest. The holder gives the turn away between two local steps: after a stretch if another one that
// waits has trained no more, and at once if that one is a stretch behind. Its zero value is ready.
type TrainingLock struct {
	waiting atomic.Int32 // the length of queue, to be read at each local step

	mu                sync.Mutex
	holder            *lockHandle
	queue             []*lockHandle // in the order in which they came
	since             time.Time     // the holder has it
	usageCountedUntil time.Time     // its time before is in used
	minUsedTime       time.Duration // the least used of those that train or wait; never less than it was
}

// TrainingShare is what a federation has of its device's turn.
type TrainingShare struct {
	trainingLock *TrainingLock
	name         string
	usedTime     time.Duration // with the turn, or what counts as much
}

// NewShare makes the share of a federation, which is told by its name to those that wait.
func (t *TrainingLock) NewShare(name string) *TrainingShare {
	return &TrainingShare{trainingLock: t, name: name}
}

const (
	// lockTimeSlice is how long who trains keeps the turn. To give it away costs microseconds, but a block that waits
	// keeps its parameters in memory.
	lockTimeSlice = time.Second
	// reportWaitAfter is the time after which a wait is told.
	reportWaitAfter = 100 * time.Millisecond
)

// lockHandle is the turn as one job takes it and gives it back.
type lockHandle struct {
	*TrainingShare
	host.Runtime
	waiter     host.Waiter
	reportWait func(TrainingLockAwaited)
	totalWait  time.Duration // in all; its goroutine's
}

func (a *Agent) newLockHandle() *lockHandle {
	return &lockHandle{TrainingShare: a.cfg.TrainingShare, Runtime: a.core.Loop.Runtime,
		waiter:     a.core.Loop.NewWaiter(),
		reportWait: func(f TrainingLockAwaited) { a.core.Loop.RunOnLoop(func() { a.cfg.Observer.Observe(f) }) }}
}

// yieldBetweenSteps is called between two local steps.
func (h *lockHandle) yieldBetweenSteps(ctx context.Context) {
	if h.trainingLock.waiting.Load() > 0 {
		_ = h.acquire(ctx) // the job finds that ctx has ended
	}
}

// acquire waits for the turn. The holder keeps it, or gives it away and waits for it. The error is that ctx has ended,
// and another one has the turn.
func (h *lockHandle) acquire(ctx context.Context) error {
	t := h.trainingLock
	t.mu.Lock()
	now := h.Now()
	t.countHolderTime(now)
	if t.holder == h && t.mustYield(now) {
		t.handOver(now)
	}
	if t.holder == h {
		t.mu.Unlock()
		return nil
	}
	h.usedTime = max(h.usedTime, t.minUsedTime-lockTimeSlice) // who did not want to train has saved no more
	t.queue = append(t.queue, h)
	if t.holder == nil {
		t.handOver(now)
		t.mu.Unlock()
		return nil
	}
	t.waiting.Store(int32(len(t.queue)))
	t.mu.Unlock()
	return h.await(ctx, now)
}

// await waits in the queue.
func (h *lockHandle) await(ctx context.Context, began time.Time) error {
	t, until := h.trainingLock, began.Add(reportWaitAfter)
	for {
		h.waiter.Wait(ctx, until, nil)
		now := h.Now()
		t.mu.Lock()
		holder, err := t.holder, ctx.Err()
		if holder != h && err != nil {
			t.queue = slices.DeleteFunc(t.queue, func(other *lockHandle) bool { return other == h })
			t.waiting.Store(int32(len(t.queue)))
		}
		t.mu.Unlock()
		switch {
		case holder == h || err != nil:
			h.totalWait += now.Sub(began)
			if until.IsZero() {
				h.reportWait(TrainingLockAwaited{Waited: now.Sub(began)})
			}
			if holder == h {
				return nil
			}
			return err
		case !until.IsZero() && !now.Before(until):
			until = time.Time{}
			h.reportWait(TrainingLockAwaited{LockHolder: holder.name})
		}
	}
}

// release gives the turn back, if the job has it.
func (h *lockHandle) release() {
	t := h.trainingLock
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == h {
		now := h.Now()
		t.countHolderTime(now)
		t.handOver(now)
	}
}

// countHolderTime counts the time that the holder has trained.
func (t *TrainingLock) countHolderTime(now time.Time) {
	if t.holder == nil {
		return
	}
	t.holder.usedTime += now.Sub(t.usageCountedUntil)
	t.usageCountedUntil = now
	least := t.holder.usedTime
	for _, h := range t.queue {
		least = min(least, h.usedTime)
	}
	t.minUsedTime = max(t.minUsedTime, least)
}

// nextInQueue is the place of the one in the queue that is next; below 0 if nobody waits.
func (t *TrainingLock) nextInQueue() int {
	next := -1
	for i, h := range t.queue {
		if next < 0 || h.usedTime < t.queue[next].usedTime {
			next = i
		}
	}
	return next
}

// mustYield reports whether the holder has to give the turn away. A federation that is a stretch behind does not wait
// for the end of the holder's: it would be two behind then, and the holder would wait for as long.
func (t *TrainingLock) mustYield(now time.Time) bool {
	i := t.nextInQueue()
	if i < 0 {
		return false
	}
	ahead := t.holder.usedTime - t.queue[i].usedTime
	return ahead >= lockTimeSlice || ahead >= 0 && now.Sub(t.since) >= lockTimeSlice
}

// handOver gives the turn to the next one, if there is one.
func (t *TrainingLock) handOver(now time.Time) {
	i := t.nextInQueue()
	if i < 0 {
		t.holder = nil
		return
	}
	t.holder, t.since, t.usageCountedUntil = t.queue[i], now, now
	t.queue = slices.Delete(t.queue, i, i+1)
	t.waiting.Store(int32(len(t.queue)))
	t.holder.waiter.Wake()
}

var (
	trainingWaits = observe.Gauge("training_waits",
		"Whether training waits (1) or not (0), since the device trains for another of its federations.")
	trainingWaitSeconds = observe.Counter("training_wait_seconds_total",
		"Time that training has waited while the device trained for other federations, in waits of 0.1 s and more.")
)

// TrainingLockAwaited: training waits because the device trains for another of its federations. LockHolder is empty
// when the wait is over, which took Waited. Waits of less than 100 ms are not reported.
type TrainingLockAwaited struct {
	LockHolder string
	Waited     time.Duration
}

// Describe implements observe.Event.
func (e TrainingLockAwaited) Describe(d *observe.Description) {
	d.SetBool(trainingWaits, e.LockHolder != "")
	d.Add(trainingWaitSeconds, e.Waited.Seconds())
	if e.LockHolder != "" {
		d.Log(observe.Debug, "training waits for another federation", "for", e.LockHolder)
	}
}
