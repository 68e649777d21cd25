package d2d

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Neighbor describes an edge by the agent at the other end and the weight of the edge.
type Neighbor struct {
	ID           wire.AgentID
	MixingWeight float64 // weight w_ij of the edge, equal at both ends
	ClipBound    float64 // clip bound τ_ij of the edge, equal at both ends (see ClippedFlowWeight); 0 means no bound
	// Boot is the boot epoch (process number) of the neighbour with which to mix. Zero means that the agent accepts the
	// process that sends the first message.
	Boot wire.Epoch
	// PublicKey is the neighbour's X25519 public key; nil if messages are not sealed.
	PublicKey []byte
}

// MixingConfig configures the mixing of an agent. All durations refer to the agent's own clock.
type MixingConfig[T wire.Float] struct {
	Boot      wire.Epoch // boot epoch of this agent
	Neighbors []Neighbor // neighbours in ascending order of ID, without this agent
	// BlockSteps is the number H of mixing steps of the block; 0 means an endless block (`server_every: 0`).
	BlockSteps uint64
	// JoinTimeout is the time for which an agent that returns to an endless block waits for its neighbours' snapshots.
	// The agent begins with the median of the snapshots, or after the timeout with its own parameters. The value 0
	// means that the agent begins with its own parameters at once.
	JoinTimeout time.Duration
	// SnapshotTimeout is the maximum time for which a step waits for the snapshots of the neighbours; 0 means no limit.
	SnapshotTimeout time.Duration
	// MaxSilentWaits is the number of consecutive timeouts after which steps no longer wait for a silent neighbour.
	// When a message from the neighbour arrives, steps wait for the neighbour again.
	MaxSilentWaits int
	// RepeatInterval is the interval at which the agent requests a missing snapshot. After some unsuccessful requests
	// the interval doubles, up to 16 times RepeatInterval.
	RepeatInterval time.Duration
	// DrainTimeout is the maximum time after the last step during which late flows are applied. The first step also
	// waits at least this long for snapshots, because each neighbour begins a block only when the block's announcement
	// has arrived.
	DrainTimeout time.Duration
	// Quantize replaces a vector in place by the values that the receivers will decode, so that both ends compute a
	// flow from the same numbers. It is nil if the encoding is exact.
	Quantize func(x []T)
	// Trace records all changes of the parameters; nil disables it. Experiments use it to check that mixing conserves
	// the sum of the parameters.
	Trace ParameterTrace[T]
}

// ParameterTrace records the changes of the parameters of a block.
type ParameterTrace[T wire.Float] interface {
	// MixingStarts is called with the boot epoch of the agent's process and the initial parameters x_0. It is called
	// again if a joining agent adopts the parameters of its neighbours. Mixing modifies x in place.
	MixingStarts(boot wire.Epoch, x []T)
	// StepBegins is called before each local step, and StepEnds after each local step.
	StepBegins()
	StepEnds()
	// FlowApplied is called for each flow weight·(theirs − own) that was applied on the edge to a neighbour's process
	// with the given boot epoch. The parameter late is true if the flow is applied after the step of its snapshots.
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
