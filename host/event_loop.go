package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// ErrClosed is returned by Run if the connection's event channel is closed.
var ErrClosed = errors.New("the connection was closed")

// EventLoop runs the goroutine that owns the state of a program. Concurrent jobs pass functions to the loop, which
// calls these functions on its goroutine.
type EventLoop struct {
	JobRuntime
	waiter     JobWaiter // waiter of the loop's goroutine
	jobContext context.Context
	cancelJobs context.CancelFunc

	mu            sync.Mutex
	pendingCalls  []*loopCall
	livenessPings []*loopCall // calls of CheckAlive that wait for a response
	runningJobs   int         // number of jobs that are still running
}

// loopCall is a function that must be called on the loop's goroutine. The loop notifies callerWaiter after it has
// removed the call from the queue.
type loopCall struct {
	callback     func()
	callerWaiter JobWaiter
	isTaken      bool
}

// NewEventLoop returns an event loop with the runtime rt. If rt is nil, it uses RealTimeRuntime.
func NewEventLoop(rt JobRuntime) *EventLoop {
	if rt == nil {
		rt = RealTimeRuntime{}
	}
	return &EventLoop{JobRuntime: rt, waiter: rt.NewWaiter()}
}

// AllowJobs creates the context of the jobs. It must be called before the first job starts. The context ends with ctx
// or with CancelJobs.
func (o *EventLoop) AllowJobs(ctx context.Context) {
	o.jobContext, o.cancelJobs = context.WithCancel(ctx)
}

// Context returns the context of the jobs. It is cancelled when the program ends.
func (o *EventLoop) Context() context.Context { return o.jobContext }

// CancelJobs cancels the context of the jobs.
func (o *EventLoop) CancelJobs() { o.cancelJobs() }

// CancelAndAwaitJobs cancels the context of the jobs and waits until all jobs have returned.
func (o *EventLoop) CancelAndAwaitJobs() {
	o.cancelJobs()
	o.AwaitJobsAfterEnd(func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.runningJobs == 0
	})
}

// AwaitJobsAfterEnd blocks until done returns true, even if the context for jobs has ended. It calls done again
// whenever a job has ended.
func (o *EventLoop) AwaitJobsAfterEnd(done func() bool) {
	for !done() {
		o.waiter.Wait(context.Background(), time.Time{}, nil)
	}
}

// LoopHandlers contains the callbacks of an event loop, all of which run on the loop's goroutine.
type LoopHandlers struct {
	BeforeWait   func() error        // called before each wait; an error ends the loop
	OnMQTTEvent  func(mqtt.Event)    // called for each event of the MQTT connection
	OnDeadline   func(now time.Time) // called when the time of NextDeadline has passed
	NextDeadline func() time.Time
}

// Run processes events and calls until ctx ends, and then returns nil. It returns the error of BeforeWait, or ErrClosed
// if events is closed.
func (o *EventLoop) Run(ctx context.Context, events <-chan mqtt.Event, p LoopHandlers) error {
	for {
		if err := p.BeforeWait(); err != nil {
			return err
		}
		o.dequeueCalls(&o.livenessPings)
		var e mqtt.Event
		open, deadline, result := true, p.NextDeadline(), o.dequeueCalls(&o.pendingCalls)
		if result == nil {
			if e, open = o.waiter.Wait(ctx, deadline, events); e == nil {
				result = o.dequeueCalls(&o.pendingCalls)
			}
		}
		switch now := o.Now(); {
		case ctx.Err() != nil: // Jobs may have been cancelled, so drop their results.
			return nil
		case !open:
			return ErrClosed
		case e != nil:
			p.OnMQTTEvent(e)
		case result != nil:
			result()
		case !now.Before(deadline):
			p.OnDeadline(now)
		}
	}
}

// dequeueCalls removes calls from the queue and notifies their callers. It stops after the first call that contains a
// function, and returns this function.
func (o *EventLoop) dequeueCalls(from *[]*loopCall) (result func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for result == nil && len(*from) > 0 {
		w := (*from)[0]
		*from = slices.Delete(*from, 0, 1)
		w.isTaken, result = true, w.callback
		w.callerWaiter.Wake()
	}
	return result
}

// Go runs job on another goroutine, concurrently with the event loop.
func (o *EventLoop) Go(job func()) {
	o.mu.Lock()
	o.runningJobs++
	o.mu.Unlock()
	o.JobRuntime.Go(func() {
		job()
		o.mu.Lock()
		o.runningJobs--
		o.mu.Unlock()
		o.waiter.Wake()
	})
}

// GoThen runs work concurrently with the event loop and then calls the returned function on the loop's goroutine.
func (o *EventLoop) GoThen(work func() (then func())) { o.Go(func() { o.RunOnLoop(work()) }) }

// RunOnLoop calls result on the loop's goroutine. It drops the call if the program ends first.
func (o *EventLoop) RunOnLoop(result func()) { _ = o.RunOnLoopContext(o.jobContext, result) }

// RunOnLoopContext calls result on the loop's goroutine. It returns an error that wraps ctx.Err() if ctx ends before
// the loop has dequeued the call.
func (o *EventLoop) RunOnLoopContext(ctx context.Context, result func()) error {
	return o.enqueueAndAwaitCall(ctx, &o.pendingCalls, result)
}

// CheckAlive returns nil as soon as the event loop responds, even while the loop is paused. It returns an error if ctx
// ends first.
func (o *EventLoop) CheckAlive(ctx context.Context) error {
	return o.enqueueAndAwaitCall(ctx, &o.livenessPings, nil)
}

// enqueueAndAwaitCall appends a call to list and waits until the loop has dequeued the call or ctx ends.
func (o *EventLoop) enqueueAndAwaitCall(ctx context.Context, list *[]*loopCall, result func()) error {
	w := &loopCall{callback: result, callerWaiter: o.NewWaiter()}
	o.mu.Lock()
	*list = append(*list, w)
	o.mu.Unlock()
	o.waiter.Wake()
	for {
		o.mu.Lock()
		taken, err := w.isTaken, ctx.Err()
		if !taken && err != nil {
			*list = slices.DeleteFunc(*list, func(other *loopCall) bool { return other == w })
		}
		o.mu.Unlock()
		switch {
		case taken:
			return nil
		case err != nil:
			return fmt.Errorf("the event loop does not respond: %w", err)
		}
		w.callerWaiter.Wait(ctx, time.Time{}, nil)
	}
}

// PauseLoop blocks the event loop for the duration d. During this time, the loop only responds to CheckAlive. PauseLoop
// returns an error if the program ends.
func (o *EventLoop) PauseLoop(d time.Duration) error {
	return o.pauseWithWaiter(d, o.waiter, func() { o.dequeueCalls(&o.livenessPings) })
}

// WaitUntil blocks the event loop until done returns true. It calls done again whenever a job ends and after Wake.
// During the wait, the loop only responds to CheckAlive. WaitUntil returns an error if the program ends.
func (o *EventLoop) WaitUntil(done func() bool) error {
	for !done() {
		o.dequeueCalls(&o.livenessPings)
		if err := o.jobContext.Err(); err != nil {
			return err
		}
		o.waiter.Wait(o.jobContext, time.Time{}, nil)
	}
	return nil
}

// Wake makes the event loop run one iteration or, during WaitUntil, check the condition again.
func (o *EventLoop) Wake() { o.waiter.Wake() }

// PauseJob blocks the calling job for the duration d. It returns an error if the program ends.
func (o *EventLoop) PauseJob(d time.Duration) error {
	return o.pauseWithWaiter(d, o.NewWaiter(), func() {})
}

func (o *EventLoop) pauseWithWaiter(d time.Duration, w JobWaiter, meanwhile func()) error {
	for until := o.Now().Add(d); ; w.Wait(o.jobContext, until, nil) {
		meanwhile()
		if err := o.jobContext.Err(); err != nil {
			return err
		}
		if !o.Now().Before(until) {
			return nil
		}
	}
}
