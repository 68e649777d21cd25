// Package slow makes an agent train as on a slower device, for benches and tests: each local step takes at least a
// declared time.
package slow

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Trainer takes the local steps of another one, and sleeps until the device that it plays would have taken them. It
// hides whether a block is agent.Audited: who looks at what is mixed stands around it.
type Trainer struct {
	agent.Trainer
	StepTime time.Duration // of a local step; 0 = no sleep
}

// Block implements agent.Trainer.
func (s Trainer) Block(ctx context.Context, r wire.RoundID, p *task.Problem[float32], j task.Job[float32]) (agent.Block,
	error) {
	inner, err := s.Trainer.Block(ctx, r, p, j)
	return block{inner, s.StepTime, ctx}, err
}

// block takes the steps of a block slowly.
type block struct {
	agent.Block
	stepTime time.Duration
	ctx      context.Context // of the block
}

// Take implements agent.Block. It lasts until the steps have taken as long as declared, or until ctx ends. A step that
// takes no gradient is as long as any other.
func (b block) Take(x []float32, first, last uint64) error {
	slow := time.After(time.Duration(last-first+1) * b.stepTime)
	err := b.Block.Take(x, first, last)
	if err == nil {
		select {
		case <-b.ctx.Done():
		case <-slow:
		}
	}
	return err
}
