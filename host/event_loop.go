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

// ErrClosed says that the connection was closed by somebody else.
var ErrClosed = errors.New("the connection was closed")

// EventLoop is the goroutine that owns a program's state. Jobs work beside it and bring back functions, which it runs.
type EventLoop struct {
	JobRuntime
	waiter     JobWaiter // the owner's own
	jobContext context.Context
	cancelJobs context.CancelFunc

	mu            sync.Mutex
	pendingCalls  []*loopCall
	livenessPings []*loopCall // of who asks for a sign of life
	runningJobs   int         // that have not ended
}

// loopCall is for the owner, from who waits until it is taken.
type loopCall struct {
	callback     func()
	callerWaiter JobWaiter
	isTaken      bool
}

// NewEventLoop makes the owner of a program that is about to begin; in real time if rt is nil.
func NewEventLoop(rt JobRuntime) *EventLoop {
	if rt == nil {
		rt = RealTimeRuntime{}
	}
	return &EventLoop{JobRuntime: rt, waiter: rt.NewWaiter()}
}

// AllowJobs lets jobs begin. Their context ends with ctx, or when CancelJobs is called.
func (o *EventLoop) AllowJobs(ctx context.Context) {
	o.jobContext, o.cancelJobs = context.WithCancel(ctx)
}

// Context ends with the program. Jobs end soon after.
func (o *EventLoop) Context() context.Context { return o.jobContext }

// CancelJobs tells the jobs to end.
func (o *EventLoop) CancelJobs() { o.cancelJobs() }

// CancelAndAwaitJobs tells the jobs to end, and waits for them.
func (o *EventLoop) CancelAndAwaitJobs() {
	o.cancelJobs()
	o.AwaitJobsAfterEnd(func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.runningJobs == 0
	})
}

// AwaitJobsAfterEnd has the owner, when its program is over, wait until jobs have done something. The end of each job
// has it look.
func (o *EventLoop) AwaitJobsAfterEnd(done func() bool) {
	for !done() {
		o.waiter.Wait(context.Background(), time.Time{}, nil)
	}
}

// LoopHandlers is what the owner does. All of it runs in the owner's goroutine.
type LoopHandlers struct {
	BeforeWait   func() error        // before each wait; an error ends the program
	OnMQTTEvent  func(mqtt.Event)    // of the connection
	OnDeadline   func(now time.Time) // when the deadline passes
	NextDeadline func() time.Time
}

// Run works until ctx ends, and returns nil then. Otherwise it returns the error of a Turn, or ErrClosed.
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
		case ctx.Err() != nil: // a job may have been cut short
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

// dequeueCalls takes the words that wait: all pings, or one result.
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

// Go runs a job beside the owner.
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

// GoThen runs work beside the owner, and then the function that it returns on the owner's goroutine.
func (o *EventLoop) GoThen(work func() (then func())) { o.Go(func() { o.RunOnLoop(work()) }) }

// RunOnLoop has the owner do something, unless the program ends.
func (o *EventLoop) RunOnLoop(result func()) { _ = o.RunOnLoopContext(o.jobContext, result) }

// RunOnLoopContext calls result on the owner's goroutine. It returns ctx.Err() if the owner does not take it in time.
func (o *EventLoop) RunOnLoopContext(ctx context.Context, result func()) error {
	return o.enqueueAndAwaitCall(ctx, &o.pendingCalls, result)
}

// CheckAlive returns nil once the owner has been met: it works, or waits in Pause, and does not hang. The error is that
// it has not been met before ctx ended.
func (o *EventLoop) CheckAlive(ctx context.Context) error {
	return o.enqueueAndAwaitCall(ctx, &o.livenessPings, nil)
}

// enqueueAndAwaitCall waits until the owner has taken a word.
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
			return fmt.Errorf("no sign of life: %w", err)
		}
		w.callerWaiter.Wait(ctx, time.Time{}, nil)
	}
}

// PauseLoop is a wait of the owner itself, which shows that it is alive. The error is that the program ends.
func (o *EventLoop) PauseLoop(d time.Duration) error {
	return o.pauseWithWaiter(d, o.waiter, func() { o.dequeueCalls(&o.livenessPings) })
}

// WaitUntil has the owner wait until jobs have done something, and shows that it is alive. The end of each job, and
// Wake, have it look. The error is that the program ends.
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

// Wake has the owner take a turn, or look again.
func (o *EventLoop) Wake() { o.waiter.Wake() }

// PauseJob is a wait of a job.
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
