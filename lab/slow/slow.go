// Package slow makes an agent train as on a slower device, for benches, tests and the simulator: each local step takes
// at least a declared time.
package slow

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Trainer takes the local steps of another one, and waits until the device that it plays would have taken them. It
// hides whether a block is training.TracedBlock: who looks at what is mixed stands around it.
type Trainer struct {
	training.Trainer
	StepTime time.Duration // of a local step; 0 = it does not wait
	// Runtime is the time of the device; real time unless set.
	Runtime host.JobRuntime
}

// NewBlock implements training.Trainer.
func (s Trainer) NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
	j task.LocalJob[float32]) (training.LocalStepBlock,
	error) {
	if s.Runtime == nil {
		s.Runtime = host.RealTimeRuntime{}
	}
	inner, err := s.Trainer.NewBlock(ctx, r, p, j)
	return block{inner, s, ctx}, err
}

// block takes the steps of a block slowly.
type block struct {
	training.LocalStepBlock
	trainer Trainer
	ctx     context.Context // of the block
}

// TakeSteps implements training.LocalStepBlock. It lasts until the steps have taken as long as declared, or until ctx
// ends. A step that takes no gradient is as long as any other.
func (b block) TakeSteps(x []float32, first, last uint64) error {
	rt := b.trainer.Runtime
	over := rt.Now().Add(time.Duration(last-first+1) * b.trainer.StepTime)
	if err := b.LocalStepBlock.TakeSteps(x, first, last); err != nil {
		return err
	}
	for w := rt.NewWaiter(); b.ctx.Err() == nil && rt.Now().Before(over); {
		w.Wait(b.ctx, over, nil)
	}
	return nil
}
