package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
)

// engine is an in-memory store without faults.
type engine struct {
	mu       sync.Mutex
	revision uint64
	values   map[string]value
}

type value struct {
	bytes    []byte
	revision uint64
}

func newEngine() *engine { return &engine{values: map[string]value{}} }

func (e *engine) get(key string) ([]byte, uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	v, is := e.values[key]
	if !is {
		return nil, 0, fmt.Errorf("%s: %w", key, ErrNone)
	}
	return slices.Clone(v.bytes), v.revision, nil
}

func (e *engine) put(key string, b []byte, revision uint64) (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(b) > MaxValue {
		return 0, errors.New("too long a value")
	}
	if e.values[key].revision != revision {
		return 0, ErrConflict
	}
	e.revision++
	e.values[key] = value{slices.Clone(b), e.revision}
	return e.revision, nil
}

// machine simulates a machine that can be suspended and disconnected from the store.
type machine struct {
	*engine
	host.RealTimeRuntime // uses the simulated clock of the synctest bubble

	mu      sync.Mutex
	rng     *rand.Rand
	calm    bool          // true if the store always answers at once
	cut     bool          // true while the machine is disconnected from the store
	stopped chan struct{} // closed on resumption; nil while running
}

// run blocks while the machine is suspended.
func (m *machine) run() {
	for {
		m.mu.Lock()
		c := m.stopped
		m.mu.Unlock()
		if c == nil {
			return
		}
		<-c
	}
}

func (m *machine) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped == nil {
		m.stopped = make(chan struct{})
	}
}

func (m *machine) goOn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped != nil {
		close(m.stopped)
		m.stopped = nil
	}
}

func (m *machine) setCut(cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = cut
}

// NewWaiter implements host.JobRuntime. Waiters do not wake while the machine is suspended.
func (m *machine) NewWaiter() host.JobWaiter { return stoppable{m, m.RealTimeRuntime.NewWaiter()} }

type stoppable struct {
	m *machine
	host.JobWaiter
}

func (w stoppable) Wait(ctx context.Context, until time.Time, events <-chan mqtt.Event) (mqtt.Event, bool) {
	e, open := w.JobWaiter.Wait(ctx, until, events)
	w.m.run()
	return e, open
}

var errCut = errors.New("no response from stream")

// call simulates a call of the store over the network. Even if call returns an error, do may be executed, possibly
// later.
func (m *machine) call(ctx context.Context, do func() error) error {
	m.run()
	m.mu.Lock()
	calm, cut, dice := m.calm, m.cut, m.rng.Float64()
	delay := time.Duration(m.rng.Int64N(int64(100 * time.Millisecond)))
	m.mu.Unlock()
	if calm {
		return do()
	}
	late := func(d time.Duration) {
		time.AfterFunc(d, func() { _ = do() })
	}
	defer m.run()
	wait := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	switch {
	case cut:
		wait(3 * time.Second)
		return errCut
	case dice < 0.02: // the request is lost
		wait(3 * time.Second)
		return errCut
	case dice < 0.04: // the answer is lost
		_ = do()
		wait(3 * time.Second)
		return errCut
	case dice < 0.05: // the request arrives later
		late(delay * 50)
		wait(3 * time.Second)
		return errCut
	}
	wait(delay)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := do()
	wait(delay)
	return err
}

func (m *machine) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	type answer struct {
		b        []byte
		revision uint64
	}
	answered := make(chan answer, 1) // a late answer is discarded
	err := m.call(ctx, func() error {
		b, revision, err := m.get(key)
		answered <- answer{b, revision}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	x := <-answered
	return x.b, x.revision, nil
}

func (m *machine) Put(ctx context.Context, key string, b []byte, revision uint64) (uint64, error) {
	answered := make(chan uint64, 1)
	err := m.call(ctx, func() error {
		now, err := m.put(key, b, revision)
		answered <- now
		return err
	})
	if err != nil {
		return 0, err
	}
	return <-answered, nil
}

func (m *machine) Remove(ctx context.Context, key string) error {
	return m.call(ctx, func() error {
		m.engine.mu.Lock()
		defer m.engine.mu.Unlock()
		delete(m.values, key)
		return nil
	})
}

func (m *machine) Keys(ctx context.Context) ([]string, error) {
	answered := make(chan []string, 1)
	err := m.call(ctx, func() error {
		m.engine.mu.Lock()
		defer m.engine.mu.Unlock()
		answered <- slices.Collect(maps.Keys(m.values))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-answered, nil
}
