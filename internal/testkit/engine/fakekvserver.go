// Package engine is an in-memory key-value store for tests. It replaces the store in which several coordinators share
// their state.
package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/fedmesh/fedmesh/coordinator/replica"
)

// FakeKVServer is an in-memory key-value server. Each simulated process accesses it through its own [Store].
type FakeKVServer struct {
	mu       sync.Mutex
	revision uint64
	values   map[string]value
}

type value struct {
	bytes    []byte
	revision uint64
}

// New returns a server without values.
func New() *FakeKVServer { return &FakeKVServer{values: map[string]value{}} }

// Store is the connection of one process to a FakeKVServer. Intercept is called for each operation: it calls do to
// execute the operation, or returns an error instead to simulate a failure.
type Store struct {
	*FakeKVServer
	Intercept func(ctx context.Context, op, key string, do func()) error
}

// Get implements replica.KeyValueStore.
func (s Store) Get(ctx context.Context, key string) (b []byte, revision uint64, err error) {
	missed := s.Intercept(ctx, "get", key, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		v, is := s.values[key]
		if !is {
			err = fmt.Errorf("%s: %w", key, replica.ErrNone)
		}
		b, revision = slices.Clone(v.bytes), v.revision
	})
	if missed != nil {
		return nil, 0, missed
	}
	return b, revision, err
}

// Put implements replica.KeyValueStore.
func (s Store) Put(ctx context.Context, key string, b []byte, revision uint64) (now uint64, err error) {
	missed := s.Intercept(ctx, "put", key, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case len(b) > replica.MaxValue:
			err = fmt.Errorf("%s: %d bytes, at most %d", key, len(b), replica.MaxValue)
		case s.values[key].revision != revision:
			err = fmt.Errorf("%s: %w", key, replica.ErrConflict)
		default:
			s.revision++
			now = s.revision
			s.values[key] = value{slices.Clone(b), now}
		}
	})
	if missed != nil {
		return 0, missed
	}
	return now, err
}

// Remove implements replica.KeyValueStore.
func (s Store) Remove(ctx context.Context, key string) error {
	return s.Intercept(ctx, "remove", key, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.values, key)
	})
}

// Keys implements replica.KeyValueStore.
func (s Store) Keys(ctx context.Context) (keys []string, err error) {
	err = s.Intercept(ctx, "keys", "", func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for k := range s.values {
			keys = append(keys, k)
		}
		slices.Sort(keys)
	})
	return keys, err
}
