package agent

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TestSaveOfARoundThatIsOver: a write that fails is tried again only while its
// round lasts, or it would put an old update in the place of the next one.
func TestSaveOfARoundThatIsOver(t *testing.T) {
	for name, want := range map[string]bool{"under way": true, "over": false} {
		t.Run(name, func(t *testing.T) {
			a := &Agent{cfg: Config{Dir: filepath.Join(t.TempDir(), "gone"), Disk: store.Machine,
				Observer: testkit.Observer(ignoreEvent)}}
			loop := host.NewEventLoop(nil)
			a.core = &part.Core{Loop: loop, Writes: &state.Writes{Loop: loop, Observer: a.cfg.Observer}}
			a.core.Loop.AllowJobs(t.Context())
			defer a.core.Loop.CancelAndAwaitJobs()
			u := &trainedUpdate{Update: wire.Update{Kind: wire.KindTraining}}
			if err := u.setPayload([]byte{1, 2, 3, 4}, wire.Digest{}); err != nil {
				t.Fatal(err)
			}
			ctx, cease := context.WithCancel(t.Context())
			defer cease()
			a.updateStore.slots = a.cfg.state().Slots(state.Update)
			a.core.Loop.Go(func() { a.save(u, func() bool { return ctx.Err() != nil }) })
			if name == "over" {
				cease() // as release does, before the owner hears of the write
			}
			heard, turns := errors.New("heard"), 0
			if err := a.core.Loop.Run(t.Context(), nil, host.LoopHandlers{
				Deadline: func() time.Time { return time.Now().Add(time.Hour) },
				BeforeWait: func() error {
					if turns++; turns > 1 {
						return heard
					}
					return nil
				},
			}); !errors.Is(err, heard) {
				t.Fatal(err)
			}
			if again := a.core.Writes.IsFailing(updateWrite); again != want {
				t.Errorf("the write is tried again: %v, want %v", again, want)
			}
		})
	}
}

// TestNewestUpdateStays: an update that waited for its turn among the jobs until its round was over is not written over
// the next one, which the next block has saved.
func TestNewestUpdateStays(t *testing.T) {
	a := &Agent{cfg: Config{Dir: t.TempDir(), Disk: store.Machine,
		Observer: testkit.Observer(ignoreEvent)}}
	loop := host.NewEventLoop(nil)
	loop.AllowJobs(t.Context())
	a.core = &part.Core{State: a.cfg.state(), Loop: loop, DataJobs: host.NewSerialQueue(loop),
		Writes: &state.Writes{Loop: loop, Observer: a.cfg.Observer}}
	a.trainingJobs = host.NewSerialQueue(a.core.Loop)
	var err error
	if a.fetch, err = fetch.New(a.core, fetch.Config{}, nil); err != nil {
		t.Fatal(err)
	}
	a.cancelTraining, a.updateStore.slots = func() {}, a.cfg.state().Slots(state.Update)
	made := func(r wire.RoundID) *trainedUpdate {
		a.updateRequestCount++
		u := &trainedUpdate{sequence: a.updateRequestCount, run: 1, round: r,
			Update: wire.Update{Kind: wire.KindTraining}}
		if err := u.setPayload([]byte{1, 2, 3, byte(r)}, wire.Digest{}); err != nil {
			t.Fatal(err)
		}
		return u
	}
	ctx, stop := context.WithCancel(t.Context())
	a.core.Loop.Go(func() {
		_ = a.core.Loop.Run(ctx, nil, host.LoopHandlers{BeforeWait: func() error { return nil },
			Deadline: func() time.Time { return time.Now().Add(time.Hour) }})
	})
	busy, saved := make(chan struct{}), make(chan struct{})
	var next *trainedUpdate
	a.core.Loop.RunOnLoop(func() {
		a.core.DataJobs.Do(func() { <-busy })
		a.currentUpdate = made(1)
		a.submit(round.SubmitUpdate{Update: a.currentUpdate.Payload.Hash}) // behind the job
		a.releaseRound(0)
		next = made(2)
		a.trainingJobs.Do(func() {
			a.save(next, func() bool { return false })
			close(saved)
		})
	})
	<-saved
	close(busy)
	for !a.core.DataJobs.Idle() {
		a.core.Loop.RunOnLoop(func() {}) // until the job behind has met the owner
	}
	stop()
	a.core.Loop.CancelAndAwaitJobs()
	got, err := loadUpdate(a.cfg.state().Slots(state.Update))
	if err != nil || got == nil || got.round != 2 {
		t.Errorf("the disk has %+v, %v, want the update of round 2", got, err)
	}
}
