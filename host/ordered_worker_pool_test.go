package host_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/wire"
)

// TestPool checks that work items run concurrently and that their callbacks run in order, including items without work.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.run(ctx) }()
		synctest.Wait()
		pool, gates, working := host.NewOrderedWorkerPool(p.EventLoop), map[string]chan struct{}{}, make(chan string, 9)
		did := func(name string) func() { return func() { p.did = append(p.did, name) } }
		give := func(name string) {
			gate := make(chan struct{})
			gates[name] = gate
			p.RunOnLoop(func() {
				pool.RunInOrder(func() {
					working <- name
					<-gate
				}, did(name))
			})
			synctest.Wait()
		}
		p.RunOnLoop(func() { pool.RunInOrder(nil, did("first")) })
		give("a")
		give("b")
		give("c")
		p.RunOnLoop(func() { pool.RunInOrder(nil, did("d")) })
		if len(working) != 3 {
			t.Errorf("%d tasks are being done at once, want 3", len(working))
		}
		for _, step := range []struct{ open, want string }{
			{"b", "[first]"}, {"a", "[first a b]"}, {"c", "[first a b c d]"},
		} {
			close(gates[step.open])
			synctest.Wait()
			if got := fmt.Sprint(p.did); got != step.want {
				t.Errorf("after %s: %s, want %s", step.open, got, step.want)
			}
		}
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestPoolFull checks that the event loop also processes work items when the queue is full, so that the length of the
// queue is bounded.
func TestPoolFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		p.AllowJobs(t.Context())
		defer p.CancelAndAwaitJobs()
		pool, begun, most := host.NewOrderedWorkerPool(p.EventLoop), 0, 0
		gate, did := make(chan struct{}), []int(nil)
		block := func() { <-gate }
		for range 8 {
			pool.RunInOrder(block, func() { did = append(did, -1) })
			synctest.Wait()
		}
		for k := range 5000 { // All workers are busy, so the event loop does the work.
			pool.RunInOrder(func() { begun++ }, func() { did = append(did, k) })
			most = max(most, k+1-begun)
		}
		if begun < 3000 || most > 1100 {
			t.Errorf("%d tasks of 5000 were done by the owner, and at most %d waited", begun, most)
		}
		if len(did) != 0 {
			t.Error("results overtake those before them")
		}
		close(gate)
		synctest.Wait()
		pool.RunInOrder(nil, func() {})
		if len(did) < 4000 || !slices.IsSorted(did) {
			t.Errorf("%d results, want most of them, in order", len(did))
		}
	})
}

// BenchmarkPool measures the time for verifying the signatures of 1,000 hello messages, on the event loop and in a
// pool.
func BenchmarkPool(b *testing.B) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	signer := &host.Signer{Federation: "plant", Sender: "press", Key: key}
	e, err := wire.ParseEnvelope(signer.SignedEnvelope(wire.TypeHello, 1, 1, make([]byte, 60)))
	if err != nil {
		b.Fatal(err)
	}
	check := func() {
		if err := e.Verify(key.Public().(ed25519.PublicKey)); err != nil {
			b.Error(err)
		}
	}
	b.Run("owner", func(b *testing.B) {
		for b.Loop() {
			for range 1000 {
				check()
			}
		}
	})
	b.Run("pool", func(b *testing.B) {
		p := newProgram()
		ctx, end := context.WithCancel(b.Context())
		over := make(chan error, 1)
		go func() { over <- p.run(ctx) }()
		pool, done := host.NewOrderedWorkerPool(p.EventLoop), make(chan bool)
		for b.Loop() {
			err := p.RunOnLoopContext(ctx, func() {
				for range 999 {
					pool.RunInOrder(check, func() {})
				}
				pool.RunInOrder(check, func() { done <- true })
			})
			if err != nil {
				b.Fatal(err)
			}
			<-done
		}
		end()
		if err := <-over; err != nil {
			b.Error(err)
		}
	})
}
