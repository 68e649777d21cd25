package world

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
)

// errKilled is the panic value that ends the jobs of a killed process. The operations that these jobs still try have no
// effect.
var errKilled = errors.New("process killed")

// job is a coroutine of a simulated process. job runs until it waits for something.
type job struct {
	life   *processLife
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	ctx    context.Context // context of the current wait; nil while the job is running
	called time.Time       // time at which the job will resume; zero if no wake-up is scheduled
	ticket uint64          // number of waits so far; identifies wake-ups that are outdated
	// usedTime is the simulated time that the job has used since it was resumed, for example for disk operations. The
	// job's effects happen at this later time. At the next wait, the job first waits until the world's clock has
	// reached this time.
	usedTime time.Duration
}

// processLife is one lifetime of a process, from its start to its end. processLife implements host.JobRuntime for the
// program.
type processLife struct {
	w    *World
	p    *party
	jobs []*job
	dead bool
}

var _ host.JobRuntime = (*processLife)(nil)

// alive panics with errKilled if the process is dead.
func (l *processLife) alive() {
	if l.dead {
		panic(errKilled)
	}
}

// Now implements host.JobRuntime.
func (l *processLife) Now() time.Time { return l.w.jobTime() }

// Go implements host.JobRuntime.
func (l *processLife) Go(do func()) {
	l.alive()
	l.w.after(l.w.hesitation(), func() { l.run(do) })
}

// run starts a job that calls do.
func (l *processLife) run(do func()) {
	if l.dead {
		return
	}
	j := &job{life: l}
	j.next, j.stop = iter.Pull(func(yield func(struct{}) bool) {
		j.yield = yield
		defer func() {
			if r := recover(); r != nil && r != errKilled { //nolint:errorlint // it is that very value
				panic(r)
			}
		}()
		do()
	})
	l.jobs = append(l.jobs, j)
	l.w.resume(j)
}

// WithDeadline implements host.JobRuntime.
func (l *processLife) WithDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	l.alive()
	ctx, cancel := context.WithCancel(ctx)
	l.w.agenda.add(at, cancel)
	return ctx, cancel
}

// NewWaiter implements host.JobRuntime. It first waits until the world's clock has reached the time of the running job,
// because the caller is about to notify the owner goroutine.
func (l *processLife) NewWaiter() host.JobWaiter {
	if j := l.w.current; j != nil {
		j.catchUp()
	}
	return &waiter{life: l}
}

// catchUp makes the job wait until the world's clock has reached the job's time.
func (j *job) catchUp() {
	if j.usedTime == 0 {
		return
	}
	ticket, w := j.ticket+1, j.life.w
	w.after(0, func() {
		if j.ticket == ticket {
			w.resume(j)
		}
	})
	j.park(context.Background())
}

// waiter implements host.JobWaiter.
type waiter struct {
	life  *processLife
	woken bool
	job   *job   // job that waits
	inbox *inbox // inbox whose events end the wait; nil if the job waits for no events
	until time.Time
	alarm time.Time // time of the event that checks the deadline; zero if no such event is scheduled
}

// Wake implements host.JobWaiter.
func (w *waiter) Wake() {
	w.woken = true
	w.life.w.wake(w.job)
}

// Wait implements host.JobWaiter.
func (w *waiter) Wait(ctx context.Context, until time.Time, events <-chan mqtt.Event) (mqtt.Event, bool) {
	l, j := w.life, w.life.w.current
	l.alive()
	j.catchUp()
	if w.inbox = nil; events != nil {
		w.inbox = l.p.inboxes[events]
		w.inbox.waiter = w
	}
	w.until = until
	for {
		over := !until.IsZero() && !until.After(l.w.now)
		if w.inbox != nil && (!w.woken && !over || l.w.rng.IntN(2) == 0) {
			select {
			case e, open := <-events:
				return e, open
			default:
			}
		}
		if w.woken || over || ctx.Err() != nil {
			w.woken = false
			l.countIdleWait()
			return nil, true
		}
		w.job = j
		w.setAlarm()
		j.park(ctx)
		w.job = nil
	}
}

// countIdleWait counts waits that return immediately. If there are too many of them while the simulated time does not
// advance, the run fails.
func (l *processLife) countIdleWait() {
	if l.w.eventsAtOneTime++; l.w.eventsAtOneTime > mostStill {
		l.w.fail("%s repeats an operation while the simulated time does not advance", l.p.id)
		panic(errKilled)
	}
}

// setAlarm schedules an event that resumes the waiting job at its deadline.
func (w *waiter) setAlarm() {
	if w.until.IsZero() || !w.alarm.IsZero() && !w.until.Before(w.alarm) {
		return
	}
	at := w.until
	w.alarm = at
	w.life.w.agenda.add(at, func() {
		if !w.alarm.Equal(at) {
			return // a later alarm has replaced this alarm
		}
		w.alarm = time.Time{}
		switch {
		case w.job == nil || w.until.IsZero():
		case w.until.After(at):
			w.setAlarm()
		default:
			w.life.w.resume(w.job)
		}
	})
}

// park suspends the running job until it is resumed.
func (j *job) park(ctx context.Context) {
	j.ticket++
	j.ctx, j.called = ctx, time.Time{}
	if !j.yield(struct{}{}) {
		panic(errKilled)
	}
	j.life.alive()
}

// resume lets a waiting job run until its next wait.
func (w *World) resume(j *job) {
	if j.life.dead || j.ctx == nil && j.ticket > 0 {
		return
	}
	j.ctx, j.usedTime = nil, 0
	w.current = j
	_, more := j.next()
	w.current = nil
	if !more {
		j.life.jobs = slices.DeleteFunc(j.life.jobs, func(other *job) bool { return other == j })
	}
}

// wake schedules the resumption of a waiting job.
func (w *World) wake(j *job) {
	if j == nil || j.ctx == nil || j.life.dead {
		return
	}
	at, ticket := w.jobTime().Add(w.hesitation()), j.ticket
	if !j.called.IsZero() && !at.Before(j.called) {
		return
	}
	j.called = at
	w.agenda.add(at, func() {
		if j.ticket == ticket {
			w.resume(j)
		}
	})
}

// cancelled wakes all jobs whose context has ended.
func (w *World) cancelled() {
	for _, p := range w.parties {
		if p.life == nil {
			continue
		}
		for _, j := range p.life.jobs {
			if j.ctx != nil && j.ctx.Err() != nil {
				w.wake(j)
			}
		}
	}
}
