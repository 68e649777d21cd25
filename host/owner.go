package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// ErrClosed says that the connection was closed by somebody else.
var ErrClosed = errors.New("the connection was closed")

// Owner is the goroutine that owns a program's state. Jobs work beside it and bring back functions, which it runs.
type Owner struct {
	ctx     context.Context
	cancel  context.CancelFunc
	results chan func()
	pings   chan struct{} // who sends has been heard
	jobs    sync.WaitGroup
}

// NewOwner makes the owner of a program that is about to begin.
func NewOwner() *Owner {
	return &Owner{results: make(chan func()), pings: make(chan struct{})}
}

// Begin lets jobs begin. They are told to end when ctx ends, or by End.
func (o *Owner) Begin(ctx context.Context) { o.ctx, o.cancel = context.WithCancel(ctx) }

// Context ends with the program. Jobs end soon after.
func (o *Owner) Context() context.Context { return o.ctx }

// Cancel tells the jobs to end.
func (o *Owner) Cancel() { o.cancel() }

// End tells the jobs to end, and waits for them.
func (o *Owner) End() {
	o.cancel()
	o.jobs.Wait()
}

// Program is what the owner does. All of it runs in the owner's goroutine.
type Program struct {
	Turn     func() error        // before each wait; an error ends the program
	Hear     func(mqtt.Event)    // of the connection
	Tick     func(now time.Time) // when the deadline passes
	Deadline func() time.Time
}

// Run works until ctx ends, and returns nil then. Otherwise it returns the error of a Turn, or ErrClosed.
func (o *Owner) Run(ctx context.Context, events <-chan mqtt.Event, p Program) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if err := p.Turn(); err != nil {
			return err
		}
		timer.Reset(time.Until(p.Deadline()))
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events:
			if !ok {
				return ErrClosed
			}
			p.Hear(e)
		case result := <-o.results:
			if ctx.Err() == nil { // else the job may have been cut short
				result()
			}
		case <-o.pings:
		case <-timer.C:
			p.Tick(time.Now())
		}
	}
}

// Go runs a job beside the owner.
func (o *Owner) Go(job func()) { o.jobs.Go(job) }

// Tell has the owner do something, unless the program ends.
func (o *Owner) Tell(result func()) { _ = o.TellWithin(o.ctx, result) }

// TellWithin has the owner do something. The error is that the owner has not been met before ctx ended.
func (o *Owner) TellWithin(ctx context.Context, result func()) error {
	select {
	case o.results <- result:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no sign of life: %w", ctx.Err())
	}
}

// Alive returns nil once the owner has been met: it works, or waits in Pause, and does not hang. The error is that it
// has not been met before ctx ended.
func (o *Owner) Alive(ctx context.Context) error {
	select {
	case o.pings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no sign of life: %w", ctx.Err())
	}
}

// Pause is a wait of the owner itself, which shows that it is alive. The error is that the program ends.
func (o *Owner) Pause(d time.Duration) error { return o.pause(d, o.pings) }

// PauseBeside is a wait of a job.
func (o *Owner) PauseBeside(d time.Duration) error { return o.pause(d, nil) }

func (o *Owner) pause(d time.Duration, pings <-chan struct{}) error {
	over := time.After(d)
	for {
		select {
		case <-o.ctx.Done():
			return o.ctx.Err()
		case <-pings:
		case <-over:
			return nil
		}
	}
}
