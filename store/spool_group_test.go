package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// While the first update's fsync is held up, 50 more arrive; one fsync serves them all.
func TestSpoolGroupsCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 50
		var f *hookFile
		s := mustOpenHooked(t, t.TempDir(), &f)
		opened, gate := f.syncs, make(chan struct{})
		f.sync = func() error {
			<-gate
			return f.File.Sync()
		}
		var wg sync.WaitGroup
		put := func(agent string) {
			wg.Go(func() { mustPut(t, s, agent, []byte(agent)) })
		}
		put("first")
		synctest.Wait() // the first Put is in its fsync
		want := map[string][]byte{"first": []byte("first")}
		for i := range late {
			agent := fmt.Sprintf("late-%02d", i)
			want[agent] = []byte(agent)
			put(agent)
		}
		synctest.Wait() // all others wait for a place in a group
		if got := s.Entries(); len(got) != 0 {
			t.Errorf("%d entries are visible before their fsync", len(got))
		}
		close(gate)
		wg.Wait()
		if got := f.syncs - opened; got != 2 {
			t.Errorf("%d fsyncs for %d updates, want 2", got, late+1)
		}
		wantServed(t, s, want)
		mustClose(t, s)
	})
}

// A Put whose context ends while it waits for a place in a group gives up; one already in the group does not.
func TestSpoolPutGivesUpWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *hookFile
		s := mustOpenHooked(t, t.TempDir(), &f)
		gate := make(chan struct{})
		f.sync = func() error {
			<-gate
			return f.File.Sync()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Put(ctx, entryOf("in", nil), nil); err != nil {
				t.Errorf("Put in a group: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if err := s.Put(ctx, entryOf("waiting", nil), nil); !errors.Is(err, context.Canceled) {
				t.Errorf("waiting Put: %v, want context.Canceled", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(gate)
		wg.Wait()
		wantServed(t, s, map[string][]byte{"in": nil})
		mustClose(t, s)
	})
}

// BenchmarkSpoolGroupCommit reports how many times faster 64 concurrent updates become durable than 64 one by one.
func BenchmarkSpoolGroupCommit(b *testing.B) {
	const updates = 64
	payload := make([]byte, 16<<10)
	entries := make([]Entry, updates)
	for i := range entries {
		entries[i] = entryOf(fmt.Sprintf("agent-%02d", i), payload)
	}
	put := func(s *Spool, e Entry) {
		if err := s.Put(context.Background(), e, payload); err != nil {
			b.Error(err)
		}
	}
	var alone, grouped time.Duration
	for b.Loop() {
		s := mustOpen(b, b.TempDir())
		start := time.Now()
		for _, e := range entries {
			put(s, e)
		}
		alone += time.Since(start)
		mustClose(b, s)

		s = mustOpen(b, b.TempDir())
		start = time.Now()
		var wg sync.WaitGroup
		for _, e := range entries {
			wg.Go(func() { put(s, e) })
		}
		wg.Wait()
		grouped += time.Since(start)
		mustClose(b, s)
	}
	b.ReportMetric(float64(alone.Microseconds())/float64(b.N*updates), "µs/update-alone")
	b.ReportMetric(float64(grouped.Microseconds())/float64(b.N*updates), "µs/update-grouped")
	b.ReportMetric(float64(alone)/float64(grouped), "speedup")
}
