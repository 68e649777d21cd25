// Package slow simulates slower devices in benchmarks, tests and the simulator. Each local step takes at least a
// configured time.
package slow

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Trainer wraps another trainer and delays its local steps to simulate a slower device. Its blocks do not implement
// training.TracedBlock, so code that traces mixing must wrap this Trainer.
type Trainer struct {
	training.Trainer
	StepTime time.Duration // minimum duration of a local step; 0 means no delay
	// Runtime is the clock of the simulated device; nil means the real clock.
	Runtime host.JobRuntime
}

// NewBlock implements training.Trainer. NewBlock returns a block whose local steps are delayed.
func (s Trainer) NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
	j task.LocalJob[float32]) (training.LocalStepBlock,
	error) {
	if s.Runtime == nil {
		s.Runtime = host.RealTimeRuntime{}
	}
	inner, err := s.Trainer.NewBlock(ctx, r, p, j)
	return block{inner, s, ctx}, err
}

// block is a training block whose local steps are delayed.
type block struct {
	training.LocalStepBlock
	trainer Trainer
	ctx     context.Context // context of the block; it ends delays early
}

// TakeSteps implements training.LocalStepBlock. It returns when the simulated duration of the steps has passed or the
// context of the block ends.
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
