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
	// Block prepares the local steps of block r. The owner waits for it: it only prepares.
	Block(ctx context.Context, r wire.RoundID, p *task.Problem[float32], j task.Job[float32]) (Block, error)
}

// Block is the local steps of one block, from one goroutine. Where the agent mixes, its neighbours change the
// parameters between two calls of Take.
type Block interface {
	// Take takes local steps first to last, counted from 1, in place on x.
	Take(x []float32, first, last uint64) error
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

// Block implements Trainer.
func (Learner) Block(ctx context.Context, _ wire.RoundID, p *task.Problem[float32], j task.Job[float32]) (Block,
	error) {
	j.Stop = func() bool { return ctx.Err() != nil }
	return p.Stepper(j)
}
