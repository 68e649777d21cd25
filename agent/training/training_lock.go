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

// TrainingLock is held by the federation that trains. All agents of a device share the lock, so that only one agent at
// a time takes local steps. The next holder is the waiting federation that has trained for the shortest time; among
// equals, it is the federation that has waited longest.
//
// The holder yields the lock between local steps: at the end of a time slice if a waiting federation has not trained
// longer, and at once if a waiting federation has trained less by at least a time slice. The zero value is ready for
// use.
type TrainingLock struct {
	queueLength atomic.Int32 // length of queue, which is read without the mutex mu between local steps

	mu                sync.Mutex
	holder            *lockHandle
	queue             []*lockHandle // waiting jobs in order of arrival
	acquiredAt        time.Time     // time at which the current holder acquired the lock
	usageCountedUntil time.Time     // time up to which usedTime of the holder is counted
	minUsedTime       time.Duration // minimum usedTime of the holder and the queue; it never decreases
}

// TrainingLockShare is a federation's share of the training lock of its device.
type TrainingLockShare struct {
	trainingLock   *TrainingLock
	federationName string
	// total time for which the federation has held the lock; it is raised after idle periods
	usedTime time.Duration
}

// NewShare returns the share of a federation. While other federations wait for the lock, they report name as the
// holder.
func (t *TrainingLock) NewShare(name string) *TrainingLockShare {
	return &TrainingLockShare{trainingLock: t, federationName: name}
}

const (
	// lockTimeSlice is the time for which a federation may hold the lock while others wait. Yielding is cheap, but a
	// waiting block keeps its parameters in memory.
	lockTimeSlice = time.Second
	// reportWaitAfter is the time after which waiting for the lock is reported.
	reportWaitAfter = 100 * time.Millisecond
)

// lockHandle gives one training job access to the lock.
type lockHandle struct {
	*TrainingLockShare
	host.JobRuntime
	waiter     host.JobWaiter
	reportWait func(LockAwaited)
	totalWait  time.Duration // total waiting time; used only on the job's goroutine
}

func (t *TrainingManager) newLockHandle() *lockHandle {
	return &lockHandle{TrainingLockShare: t.cfg.LockShare, JobRuntime: t.core.Loop.JobRuntime,
		waiter:     t.core.Loop.NewWaiter(),
		reportWait: func(e LockAwaited) { t.core.Loop.RunOnLoop(func() { t.core.Observer.Observe(e) }) }}
}

// yieldBetweenSteps yields the lock if another federation's turn has come. It is called between two local steps.
func (h *lockHandle) yieldBetweenSteps(ctx context.Context) {
	if h.trainingLock.queueLength.Load() > 0 {
		_ = h.acquire(ctx) // Ignore the error: the job checks ctx itself.
	}
}

// acquire waits for the lock, or returns an error if ctx ends first. If the job already holds the lock, acquire first
// yields it if another federation's turn has come.
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
	// Limit the advantage after idle time to one time slice.
	h.usedTime = max(h.usedTime, t.minUsedTime-lockTimeSlice)
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

// awaitLock waits in the queue until the job holds the lock or ctx ends. It reports a wait of more than
// reportWaitAfter.
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

// nextInQueue returns the queue index of the next lock holder, or -1 if the queue is empty.
func (t *TrainingLock) nextInQueue() int {
	next := -1
	for i, h := range t.queue {
		if next < 0 || h.usedTime < t.queue[next].usedTime {
			next = i
		}
	}
	return next
}

// mustYield reports whether the holder must yield the lock. It must yield at once to a federation that has trained less
// by at least a time slice, and otherwise at the end of its time slice.
func (t *TrainingLock) mustYield(now time.Time) bool {
	i := t.nextInQueue()
	if i < 0 {
		return false
	}
	ahead := t.holder.usedTime - t.queue[i].usedTime
	return ahead >= lockTimeSlice || ahead >= 0 && now.Sub(t.acquiredAt) >= lockTimeSlice
}

// handOver passes the lock to the next job in the queue, or frees the lock if the queue is empty.
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
		"1 if training waits because this device is training for another federation, 0 otherwise.")
	trainingWaitSeconds = observe.Counter("training_wait_seconds_total",
		"Time that training waited because this device was training for another federation. Waits below 0.1 s are "+
			"not counted.")
)

// LockAwaited reports that training waits while the device trains for another federation. HolderFederation is empty
// when the wait has ended. Waits of less than 100 ms are not reported.
type LockAwaited struct {
	HolderFederation string
	Waited           time.Duration
}

// Describe implements observe.Event.
func (e LockAwaited) Describe(d *observe.EventDescription) {
	d.SetBoolGauge(trainingWaits, e.HolderFederation != "")
	d.AddToCounter(trainingWaitSeconds, e.Waited.Seconds())
	if e.HolderFederation != "" {
		d.Log(observe.Debug, "training waits because the device is training for another federation",
			"federation", e.HolderFederation)
	}
}
