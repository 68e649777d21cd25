package agent

import (
	"context"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Trainer takes the local steps of an agent. The product's is Learner. A laboratory puts decorators around it, which
// slow it down (agent/slow) or look at what it works on. No step begins after the context has ended: then the round is
// over, or too little of its time is left.
type Trainer interface {
	// Local takes the local steps of a round, beside the agent's owner.
	Local(ctx context.Context, p *task.Problem[float32], j task.Job[float32]) (task.Outcome[float32], error)
	// Block prepares those of block r, between which the agent mixes. The owner waits for it: it only prepares.
	Block(ctx context.Context, r wire.RoundID, p *task.Problem[float32], j task.Job[float32]) (Block, error)
}

// Block is the local steps of one block, from one goroutine, on parameters that neighbours change between them.
type Block interface {
	// Step takes local step t, counted from 1, in place on x.
	Step(x []float32, t uint64) error
	// OutcomeFrom returns what the agent has by now, as a change of base, and counts its steps anew.
	OutcomeFrom(base, x []float32) (task.Outcome[float32], error)
}

// Audited is a Block that is told the books of its mixing when that is over or was ended. Books are kept for such
// blocks only.
type Audited interface {
	Block
	Ended(b d2d.Books)
}

// Learner takes local steps as fast as the device can.
type Learner struct{}

// Local implements Trainer.
func (Learner) Local(ctx context.Context, p *task.Problem[float32], j task.Job[float32]) (task.Outcome[float32],
	error) {
	j.Stop = func() bool { return ctx.Err() != nil }
	return p.Local(j)
}

// Block implements Trainer.
func (Learner) Block(ctx context.Context, _ wire.RoundID, p *task.Problem[float32], j task.Job[float32]) (Block,
	error) {
	j.Stop = func() bool { return ctx.Err() != nil }
	return p.Stepper(j)
}
