package upload

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// newPart returns an UpdateUploader whose files are in the given folder.
func newPart(t *testing.T, dir string) *UpdateUploader {
	t.Helper()
	loop, observer := host.NewEventLoop(nil), testkit.Observer(func(observe.Event) {})
	core := &part.AgentCore{StateFolder: state.Folder{Disk: store.LocalDisk, Dir: dir, Observer: observer}, Loop: loop,
		DataJobs: host.NewSerialJobQueue(loop), WriteRetrier: &state.WriteRetrier{Loop: loop, Observer: observer},
		Observer: observer,
		Logger:   slog.New(slog.DiscardHandler)}
	p, err := New(core, 0, func(wire.RunID, wire.RoundID, wire.UpdateFate) {})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSaveOfARoundThatIsOver checks that a failed write of an update is retried only during the update's round. A later
// retry could replace the next update by an old one.
func TestSaveOfARoundThatIsOver(t *testing.T) {
	for name, want := range map[string]bool{"under way": true, "over": false} {
		t.Run(name, func(t *testing.T) {
			p := newPart(t, filepath.Join(t.TempDir(), "gone"))
			p.core.Loop.AllowJobs(t.Context())
			defer p.core.Loop.CancelAndAwaitJobs()
			u := &part.LocalUpdate{Update: wire.Update{Kind: wire.KindTraining}}
			if err := u.SetPayload([]byte{1, 2, 3, 4}, wire.Digest{}); err != nil {
				t.Fatal(err)
			}
			ctx, cease := context.WithCancel(t.Context())
			defer cease()
			p.core.Loop.Go(func() { p.SaveUpdate(u, func() bool { return ctx.Err() != nil }) })
			if name == "over" {
				cease() // Release the update before the event loop receives the result.
			}
			heard, turns := errors.New("heard"), 0
			if err := p.core.Loop.Run(t.Context(), nil, host.LoopHandlers{
				NextDeadline: func() time.Time { return time.Now().Add(time.Hour) },
				BeforeWait: func() error {
					if turns++; turns > 1 {
						return heard
					}
					return nil
				},
			}); !errors.Is(err, heard) {
				t.Fatal(err)
			}
			if again := p.core.WriteRetrier.IsWriteFailing(updateWrite); again != want {
				t.Errorf("the write is tried again: %v, want %v", again, want)
			}
		})
	}
}

// TestNewestUpdateStays checks that a delayed save for a round that has ended does not replace the next update, which
// is already saved.
func TestNewestUpdateStays(t *testing.T) {
	dir := t.TempDir()
	p := newPart(t, dir)
	p.core.Loop.AllowJobs(t.Context())
	made := func(r wire.RoundID) *part.LocalUpdate {
		u := &part.LocalUpdate{RequestSequence: p.NextUpdateSequence(), Run: 1, Round: r,
			Update: wire.Update{Kind: wire.KindTraining}}
		if err := u.SetPayload([]byte{1, 2, 3, byte(r)}, wire.Digest{}); err != nil {
			t.Fatal(err)
		}
		return u
	}
	ctx, stop := context.WithCancel(t.Context())
	p.core.Loop.Go(func() {
		_ = p.core.Loop.Run(ctx, nil, host.LoopHandlers{BeforeWait: func() error { return nil },
			NextDeadline: func() time.Time { return time.Now().Add(time.Hour) }})
	})
	busy, saved := make(chan struct{}), make(chan struct{})
	p.core.Loop.RunOnLoop(func() {
		p.core.DataJobs.Enqueue(func() { <-busy })
		first := made(1)
		p.SetCurrentUpdate(first)
		// This call waits for the running job.
		p.SubmitUpdate(agentround.SubmitUpdate{UpdateDigest: first.PayloadManifest.Hash})
		p.ReleaseUpdate(0, func() error { return nil })
		next := made(2)
		p.core.Loop.Go(func() {
			p.SaveUpdate(next, func() bool { return false })
			close(saved)
		})
	})
	<-saved
	close(busy)
	for !p.core.DataJobs.IsIdle() {
		p.core.Loop.RunOnLoop(func() {}) // Wait until the waiting job has reached the event loop.
	}
	stop()
	p.core.Loop.CancelAndAwaitJobs()
	if got := newPart(t, dir).SavedUpdate(); got == nil || got.Round != 2 {
		t.Errorf("the disk has %+v, want the update of round 2", got)
	}
}
