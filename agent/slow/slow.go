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

// Local implements agent.Trainer.
func (s Trainer) Local(ctx context.Context, p *task.Problem[float32], j task.Job[float32]) (task.Outcome[float32],
	error) {
	began := time.Now()
	out, err := s.Trainer.Local(ctx, p, j)
	if err == nil {
		s.sleep(ctx, began, out.Steps)
	}
	return out, err
}

// Block implements agent.Trainer.
func (s Trainer) Block(ctx context.Context, r wire.RoundID, p *task.Problem[float32], j task.Job[float32]) (agent.Block,
	error) {
	inner, err := s.Trainer.Block(ctx, r, p, j)
	return block{inner, s, ctx}, err
}

// sleep lasts until steps that have begun have taken as long as declared, or until ctx ends.
func (s Trainer) sleep(ctx context.Context, began time.Time, steps int) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(began.Add(time.Duration(steps) * s.StepTime))):
	}
}

// block takes the steps of a block slowly.
type block struct {
	agent.Block
	trainer Trainer
	ctx     context.Context // of the block
}

// Step implements agent.Block. A step that takes no gradient is as long as any other.
func (b block) Step(x []float32, t uint64) error {
	began := time.Now()
	err := b.Block.Step(x, t)
	if err == nil {
		b.trainer.sleep(b.ctx, began, 1)
	}
	return err
}
