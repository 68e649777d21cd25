package d2d

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Neighbor is one end of an edge: who is there, and the edge's weight.
type Neighbor struct {
	ID           wire.AgentID
	MixingWeight float64 // w_ij, the same at both ends
	ClipBound    float64 // τ_ij, the same at both ends: see Clip; 0 = no bound
	// Boot is the start of the neighbour's program that the edge is to, 0 while
	// it is not known: then the first message decides.
	Boot wire.Epoch
	// PublicKey is its X25519 public key; nil where messages are not sealed.
	PublicKey []byte
}

// MixingConfig says how an agent mixes. All durations are of the agent's own clock.
type MixingConfig[T wire.Float] struct {
	Boot      wire.Epoch // of this agent
	Neighbors []Neighbor // ascending by ID, without this agent
	// BlockSteps is H, the local steps of the block; 0 goes on for ever (`server_every: 0`).
	BlockSteps uint64
	// JoinTimeout has an agent that comes back to a block without an end begin with a neighbour's snapshot, for which
	// it waits so long, before it begins with its own parameters; 0 = it begins with these.
	JoinTimeout time.Duration
	// SnapshotTimeout is how long a step waits for its neighbours' snapshots; 0 waits for
	// as long as it takes.
	SnapshotTimeout time.Duration
	// MaxSilentWaits is how many waits in a row a silent neighbour may spoil, until it
	// is waited for no longer. It is waited for again once it is heard.
	MaxSilentWaits int
	// RepeatInterval is the time until a missing snapshot is asked for, again and again;
	// after some times in vain it doubles, up to 16 times this.
	RepeatInterval time.Duration
	// DrainTimeout bounds the time after the last step in which late flows may still
	// come. The first step waits as long, if that is longer than SnapshotTimeout:
	// neighbours begin a block when its announcement reaches them.
	DrainTimeout time.Duration
	// Quantize replaces a vector by what the wire will carry of it, in place, so
	// that both ends compute a flow from the same numbers; nil where that is T itself.
	Quantize func(x []T)
	// Trace, if set, follows what changes the parameters: the laboratory checks with it that mixing conserves their
	// sum.
	Trace ParameterTrace[T]
}

// ParameterTrace follows what changes the parameters of a block.
type ParameterTrace[T wire.Float] interface {
	// MixingStarts is called with the start of the agent's program and the parameters x_0, and again if an agent that
	// joins takes those of its neighbours. Mixing changes x in place.
	MixingStarts(boot wire.Epoch, x []T)
	// StepBegins and StepEnds enclose each local step.
	StepBegins()
	StepEnds()
	// FlowApplied is called for each flow weight·(theirs − own) of an edge to this start of a neighbour's program. A
	// late one is applied after the step of its snapshots.
	FlowApplied(neighbor wire.AgentID, boot wire.Epoch, weight T, own, theirs []T, late bool)
}

// Validate reports every field that cannot work.
func (c MixingConfig[T]) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i, n := range c.Neighbors {
		if i > 0 && c.Neighbors[i-1].ID >= n.ID {
			fail("neighbour %q after %q: they must ascend", n.ID, c.Neighbors[i-1].ID)
		}
		if math.IsNaN(n.MixingWeight) || math.IsInf(n.MixingWeight, 0) {
			fail("weight of the edge to %q is %v", n.ID, n.MixingWeight)
		}
		if !(n.ClipBound >= 0) || math.IsInf(n.ClipBound, 0) {
			fail("bound of the edge to %q is %v", n.ID, n.ClipBound)
		}
	}
	if c.Boot == 0 {
		fail("boot epoch 0")
	}
	if c.SnapshotTimeout < 0 || c.DrainTimeout < 0 || c.JoinTimeout < 0 {
		fail("wait %v, drain %v and join %v must not be negative", c.SnapshotTimeout, c.DrainTimeout, c.JoinTimeout)
	}
	if c.JoinTimeout > 0 && c.BlockSteps > 0 {
		fail("a block with %d steps cannot be joined", c.BlockSteps)
	}
	if c.RepeatInterval <= 0 && len(c.Neighbors) > 0 {
		fail("repeat %v must be positive", c.RepeatInterval)
	}
	if c.MaxSilentWaits < 1 {
		fail("patience %d must be at least 1", c.MaxSilentWaits)
	}
	return errors.Join(errs...)
}
