package training

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
)

// TrainingLock is held by the federation that trains. All agents of a device share it, so one at a time takes local
// steps. The waiting federation with the least training time is next; among equals, the one that has waited longest.
//
// The holder yields between local steps: at the end of a time slice if a waiting federation has not trained longer, and
// at once if one is a time slice behind. The zero value is ready for use.
type TrainingLock struct {
	queueLength atomic.Int32 // length of queue, read at each local step

	mu                sync.Mutex
	holder            *lockHandle
	queue             []*lockHandle // waiting jobs in order of arrival
	acquiredAt        time.Time     // time at which the holder has acquired the lock
	usageCountedUntil time.Time     // end of the time included in the holder's usedTime
	minUsedTime       time.Duration // minimum usedTime of holder and queue; never decreases
}

// TrainingLockShare is a federation's share of the training lock of its device.
type TrainingLockShare struct {
	trainingLock   *TrainingLock
	federationName string
	usedTime       time.Duration // time for which it has held the lock, or an equivalent
}

// NewShare returns the share of a federation. Waiting federations report its name.
func (t *TrainingLock) NewShare(name string) *TrainingLockShare {
	return &TrainingLockShare{trainingLock: t, federationName: name}
}

const (
	// lockTimeSlice is the time for which the holder keeps the lock. Yielding takes microseconds, but a waiting block
	// keeps its parameters in memory.
	lockTimeSlice = time.Second
	// reportWaitAfter is the minimum duration of a reported wait.
	reportWaitAfter = 100 * time.Millisecond
)

// lockHandle is the handle with which one job uses the lock.
type lockHandle struct {
	*TrainingLockShare
	host.JobRuntime
	waiter     host.JobWaiter
	reportWait func(LockAwaited)
	totalWait  time.Duration // used on the job's goroutine
}

func (t *TrainingManager) newLockHandle() *lockHandle {
	return &lockHandle{TrainingLockShare: t.cfg.LockShare, JobRuntime: t.core.Loop.JobRuntime,
		waiter:     t.core.Loop.NewWaiter(),
		reportWait: func(e LockAwaited) { t.core.Loop.RunOnLoop(func() { t.core.Observer.Observe(e) }) }}
}

// yieldBetweenSteps is called between two local steps. It yields the lock if another federation is due.
func (h *lockHandle) yieldBetweenSteps(ctx context.Context) {
	if h.trainingLock.queueLength.Load() > 0 {
		_ = h.acquire(ctx) // after an error, the job detects that ctx has ended
	}
}

// acquire waits for the lock. A holder keeps it, or yields and waits again. It returns an error if ctx ends first.
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
	h.usedTime = max(h.usedTime, t.minUsedTime-lockTimeSlice) // idle time gives an advantage of at most one slice
	t.queue = append(t.queue, h)
	if t.holder == nil {
		t.handOver(now)
		t.mu.Unlock()
		return nil
	}
	t.queueLength.Store(int32(len(t.queue)))
	t.mu.Unlock()
	return h.awaitLock(ctx, now)
}

// awaitLock waits in the queue.
func (h *lockHandle) awaitLock(ctx context.Context, began time.Time) error {
	t, until := h.trainingLock, began.Add(reportWaitAfter)
	for {
		h.waiter.Wait(ctx, until, nil)
		now := h.Now()
		t.mu.Lock()
		holder, err := t.holder, ctx.Err()
		if holder != h && err != nil {
			t.queue = slices.DeleteFunc(t.queue, func(other *lockHandle) bool { return other == h })
			t.queueLength.Store(int32(len(t.queue)))
		}
		t.mu.Unlock()
		switch {
		case holder == h || err != nil:
			h.totalWait += now.Sub(began)
			if until.IsZero() {
				h.reportWait(LockAwaited{Waited: now.Sub(began)})
			}
			if holder == h {
				return nil
			}
			return err
		case !until.IsZero() && !now.Before(until):
			until = time.Time{}
			h.reportWait(LockAwaited{HolderFederation: holder.federationName})
		}
	}
}

// release releases the lock if the job holds it.
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

// countHolderTime adds the time since the last call to the holder's usedTime.
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

// nextInQueue returns the index of the next holder in the queue, or -1 if the queue is empty.
func (t *TrainingLock) nextInQueue() int {
	next := -1
	for i, h := range t.queue {
		if next < 0 || h.usedTime < t.queue[next].usedTime {
			next = i
		}
	}
	return next
}

// mustYield reports whether the holder must yield. A federation that is one time slice behind preempts the holder at
// once; otherwise it would fall two slices behind.
func (t *TrainingLock) mustYield(now time.Time) bool {
	i := t.nextInQueue()
	if i < 0 {
		return false
	}
	ahead := t.holder.usedTime - t.queue[i].usedTime
	return ahead >= lockTimeSlice || ahead >= 0 && now.Sub(t.acquiredAt) >= lockTimeSlice
}

// handOver gives the lock to the next holder, or to no one if the queue is empty.
func (t *TrainingLock) handOver(now time.Time) {
	i := t.nextInQueue()
	if i < 0 {
		t.holder = nil
		return
	}
	t.holder, t.acquiredAt, t.usageCountedUntil = t.queue[i], now, now
	t.queue = slices.Delete(t.queue, i, i+1)
	t.queueLength.Store(int32(len(t.queue)))
	t.holder.waiter.Wake()
}

var (
	trainingWaits = observe.Gauge("training_waits",
		"Whether training waits for another federation of this device (1) or not (0).")
	trainingWaitSeconds = observe.Counter("training_wait_seconds_total",
		"Time that training waited for other federations of this device, in waits of at least 0.1 s.")
)

// LockAwaited reports that training waits because the device trains for another federation. HolderFederation is empty
// when the wait is over. Waits of less than 100 ms are not reported.
type LockAwaited struct {
	HolderFederation string
	Waited           time.Duration
}

// Describe implements observe.Event.
func (e LockAwaited) Describe(d *observe.EventDescription) {
	d.SetBoolGauge(trainingWaits, e.HolderFederation != "")
	d.AddToCounter(trainingWaitSeconds, e.Waited.Seconds())
	if e.HolderFederation != "" {
		d.Log(observe.Debug, "training waits for another federation", "federation", e.HolderFederation)
	}
}
