package training

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/host"
)

// lane simulates one federation of a device, which trains one block of local steps after another.
type lane struct {
	t       *testing.T
	share   *TrainingLockShare
	running *sync.Map // names of the federations that are taking a step
	step    time.Duration

	mu      sync.Mutex
	trained time.Duration
	told    []LockAwaited
}

func (l *lane) hold() *lockHandle {
	rt := host.RealTimeRuntime{}
	return &lockHandle{TrainingLockShare: l.share, JobRuntime: rt, waiter: rt.NewWaiter(),
		reportWait: func(f LockAwaited) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.told = append(l.told, f)
		}}
}

// block takes local steps. It returns an error if it was interrupted.
func (l *lane) block(ctx context.Context, steps int) error {
	h := l.hold()
	defer h.release()
	if err := h.acquire(ctx); err != nil {
		return err
	}
	for range steps {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		l.running.Range(func(other, _ any) bool {
			l.t.Errorf("%s trains while %s does", l.share.federationName, other)
			return true
		})
		l.running.Store(l.share.federationName, true)
		<-time.After(l.step)
		l.running.Delete(l.share.federationName)
		l.mu.Lock()
		l.trained += l.step
		l.mu.Unlock()
		h.yieldBetweenSteps(ctx)
	}
	return nil
}

func (l *lane) time() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trained
}

func lanes(t *testing.T, names ...string) []*lane {
	turn, running := new(TrainingLock), new(sync.Map)
	all := make([]*lane, len(names))
	for i, name := range names {
		all[i] = &lane{t: t, share: turn.NewShare(name), running: running, step: 100 * time.Millisecond}
	}
	return all
}

// TestTurnShares checks that federations that always want to train get equal time, whatever the length of their blocks.
// The total times must differ by at most two time slices, and only one federation may train at a time.
func TestTurnShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := lanes(t, "large", "small", "mixing")
		ctx, end := context.WithTimeout(t.Context(), 300*time.Second)
		defer end()
		var running sync.WaitGroup
		for i, steps := range []int{3000, 10, 15} {
			running.Go(func() {
				for all[i].block(ctx, steps) == nil {
				}
			})
		}
		for range 299 {
			<-time.After(time.Second)
			var times []time.Duration
			for _, l := range all {
				times = append(times, l.time())
			}
			if apart := slices.Max(times) - slices.Min(times); apart > 2*lockTimeSlice {
				t.Fatalf("times %v, which are %v apart", times, apart)
			}
		}
		running.Wait()
	})
}

// TestTurnAwaited checks that neither of two federations waits longer than a time slice plus a step, whenever the
// blocks of the other federation end.
func TestTurnAwaited(t *testing.T) {
	for steps := 1; steps <= 31; steps++ {
		synctest.Test(t, func(t *testing.T) {
			all := lanes(t, "large", "small")
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			defer end()
			var running sync.WaitGroup
			for i, steps := range []int{600, steps} {
				running.Go(func() {
					for all[i].block(ctx, steps) == nil {
					}
				})
			}
			running.Wait()
			for _, l := range all {
				for _, f := range l.told {
					if f.Waited > lockTimeSlice+l.step {
						t.Errorf("blocks of %d steps: %s waited %v", steps, l.share.federationName, f.Waited)
					}
				}
				if len(l.told) < 25 {
					t.Errorf("%s told of %d waits", l.share.federationName, len(l.told)/2)
				}
			}
		})
	}
}

// TestTurnNotSaved checks that a federation does not accumulate training time while it is idle, so that it cannot block
// the other federation for long.
func TestTurnNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := lanes(t, "old", "new")
		if err := all[0].block(t.Context(), 6000); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		var running sync.WaitGroup
		for _, l := range all {
			running.Go(func() { _ = l.block(ctx, 6000) })
		}
		running.Wait()
		if old, young := all[0].time()-10*time.Minute, all[1].time(); old < 28*time.Second || young < 28*time.Second {
			t.Errorf("in a minute one trained %v and the other %v, want half each", old, young)
		}
	})
}

// TestTurnOrder checks that the waiting federation that has trained least is next, and among equals the first
// federation in the queue. A federation that stops waiting must not change the order. All waits must be reported.
func TestTurnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := lanes(t, "holder", "more", "first", "gone", "second")
		all[1].share.usedTime = time.Hour
		var order []string
		holder := all[0].hold()
		if err := holder.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		leaving, leave := context.WithCancel(t.Context())
		for _, l := range all[1:] {
			ctx := t.Context()
			if l.share.federationName == "gone" {
				ctx = leaving
			}
			running.Go(func() {
				h := l.hold()
				if err := h.acquire(ctx); err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				order = append(order, l.share.federationName)
				<-time.After(10 * time.Millisecond)
				h.release()
			})
			synctest.Wait()
		}
		<-time.After(time.Second)
		leave()
		synctest.Wait()
		holder.release()
		running.Wait()
		if got := fmt.Sprint(order); got != "[first second more]" {
			t.Errorf("the turn went to %s", got)
		}
		for _, l := range all[1:] {
			if len(l.told) != 2 || l.told[0] != (LockAwaited{HolderFederation: "holder"}) ||
				l.told[1].HolderFederation != "" ||
				l.told[1].Waited < time.Second || l.told[1].Waited > 1100*time.Millisecond {
				t.Errorf("%s told %+v", l.share.federationName, l.told)
			}
		}
		if len(all[0].told) != 0 || holder.trainingLock.holder != nil || len(holder.trainingLock.queue) != 0 ||
			holder.trainingLock.queueLength.Load() != 0 {
			t.Errorf("the holder told %+v; in the end %+v", all[0].told, holder.trainingLock)
		}
	})
}
