package d2d

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Neighbor describes an edge: the agent at its other end, and its weight.
type Neighbor struct {
	ID           wire.AgentID
	MixingWeight float64 // weight w_ij of the edge, equal at both ends
	ClipBound    float64 // clip bound τ_ij of the edge, equal at both ends; 0 = no bound; see ClippedFlowWeight
	// Boot is the boot epoch of the neighbour with which to mix. Zero means that the first message from the neighbour
	// decides.
	Boot wire.Epoch
	// PublicKey is the neighbour's X25519 public key; nil if messages are not sealed.
	PublicKey []byte
}

// MixingConfig configures the mixing of an agent. All durations refer to the agent's own clock.
type MixingConfig[T wire.Float] struct {
	Boot      wire.Epoch // boot epoch of this agent
	Neighbors []Neighbor // neighbours in ascending order of ID, without this agent
	// BlockSteps is H, the number of steps of the block; 0 means an endless block (`server_every: 0`).
	BlockSteps uint64
	// JoinTimeout is the time for which an agent that returns to an endless block waits for its neighbours' snapshots.
	// It begins with their median, or after the timeout with its own parameters. 0 = begin with its own parameters.
	JoinTimeout time.Duration
	// SnapshotTimeout is the maximum time for which a step waits for its neighbours' snapshots; 0 means no limit.
	SnapshotTimeout time.Duration
	// MaxSilentWaits is the number of consecutive timeouts after which steps no longer wait for a silent neighbour.
	// They wait for it again when a message from it arrives.
	MaxSilentWaits int
	// RepeatInterval is the interval at which a missing snapshot is requested. After some unsuccessful requests it
	// doubles, up to 16 times this value.
	RepeatInterval time.Duration
	// DrainTimeout is the maximum time after the last step in which late flows are accepted. The first step also waits
	// at least this long, because neighbours begin a block when its announcement reaches them.
	DrainTimeout time.Duration
	// Quantize replaces a vector in place by the values that the receivers will decode, so that both ends compute a
	// flow from the same numbers. It is nil if the encoding is exact.
	Quantize func(x []T)
	// Trace, if set, records all changes of the parameters. The laboratory uses it to check that mixing conserves their
	// sum.
	Trace ParameterTrace[T]
}

// ParameterTrace records the changes of the parameters of a block.
type ParameterTrace[T wire.Float] interface {
	// MixingStarts is called with the start of the agent's program and the initial parameters x_0. It is called again
	// if a joining agent adopts the parameters of its neighbours. Mixing modifies x in place.
	MixingStarts(boot wire.Epoch, x []T)
	// StepBegins and StepEnds are called before and after each local step.
	StepBegins()
	StepEnds()
	// FlowApplied is called for each flow weight·(theirs − own) on an edge to the given start of a neighbour's program.
	// A late flow is applied after the step of its snapshots.
	FlowApplied(neighbor wire.AgentID, boot wire.Epoch, weight T, own, theirs []T, late bool)
}

// Validate returns an error that lists all invalid fields.
func (c MixingConfig[T]) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i, n := range c.Neighbors {
		if i > 0 && c.Neighbors[i-1].ID >= n.ID {
			fail("neighbour %q is listed after %q: neighbours must be in ascending order", n.ID, c.Neighbors[i-1].ID)
		}
		if math.IsNaN(n.MixingWeight) || math.IsInf(n.MixingWeight, 0) {
			fail("weight of the edge to %q is %v: must be finite", n.ID, n.MixingWeight)
		}
		if !(n.ClipBound >= 0) || math.IsInf(n.ClipBound, 0) {
			fail("clip bound of the edge to %q is %v: must be finite and not negative", n.ID, n.ClipBound)
		}
	}
	if c.Boot == 0 {
		fail("Boot is 0: must be at least 1")
	}
	if c.SnapshotTimeout < 0 || c.DrainTimeout < 0 || c.JoinTimeout < 0 {
		fail("SnapshotTimeout is %v, DrainTimeout is %v, JoinTimeout is %v: must not be "+
			"negative", c.SnapshotTimeout, c.DrainTimeout, c.JoinTimeout)
	}
	if c.JoinTimeout > 0 && c.BlockSteps > 0 {
		fail("JoinTimeout is set and requires BlockSteps to be 0, but BlockSteps is %d", c.BlockSteps)
	}
	if c.RepeatInterval <= 0 && len(c.Neighbors) > 0 {
		fail("RepeatInterval is %v: must be positive", c.RepeatInterval)
	}
	if c.MaxSilentWaits < 1 {
		fail("MaxSilentWaits is %d: must be at least 1", c.MaxSilentWaits)
	}
	return errors.Join(errs...)
}
