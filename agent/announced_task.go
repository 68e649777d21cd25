package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// fetchTask fetches an announced task and then prepares the device's rows for the task.
func (a *Agent) fetchTask(ref wire.BlobRef) {
	a.taskData.AwaitTask(ref.Hash)
	a.fetch.Fetch(ref, fetch.Task, func(b *fetch.Blob, err error) {
		switch {
		case errors.Is(err, fetch.ErrCanceled):
		case err != nil:
			a.handleRoundEvent(agentround.TaskChecked{TaskDigest: ref.Hash, UnfitReason: wire.DeclineFetchFailed})
		default:
			a.taskData.PrepareTask(ref.Hash, b.ReadAll)
		}
	})
}

// EncodedAnnouncedTask returns the encoding of the announced task. It returns nil if the task has not arrived or is not
// supported. It may be called from any goroutine.
func (a *Agent) EncodedAnnouncedTask(ctx context.Context) ([]byte, error) {
	announced := make(chan *part.LocalTask, 1)
	if err := a.core.Loop.RunOnLoopContext(ctx, func() { announced <- a.taskData.AnnouncedTask() }); err != nil {
		return nil, err
	}
	select {
	case l := <-announced:
		if l == nil || l.CompiledTask == nil {
			return nil, nil
		}
		return l.CompiledTask.Task.AppendEncoding(nil), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the agent's event loop does not respond: %w", ctx.Err())
	}
}
