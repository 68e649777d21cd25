// Package conservation checks an invariant of mixing: exchanges between neighbours do not change the sum of all agents'
// parameters. A Trace records one agent; [Drift] computes the deviation from the traces of all agents.
package conservation

import (
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/wire"
)

// Trace records how mixing and local steps change the parameters of one agent in a block. Trace implements
// d2d.ParameterTrace.
type Trace[T wire.Float] struct {
	id               wire.AgentID
	boot             wire.Epoch // number that identifies the current start of the agent's program
	params           []T        // parameters of the agent; mixing changes the slice in place
	start            []float64  // initial parameters x_0
	localStepSum     []float64  // sum of all local steps −η·g (step size η, gradient g)
	paramsBeforeStep []float64  // parameters at the start of the current local step; nil between two steps
	flows            map[edgeEnd]*flowSum
	order            []edgeEnd // keys of flows in order of insertion
}

// edgeEnd identifies the agent at the other end of an edge. boot distinguishes restarts of that agent.
type edgeEnd struct {
	id   wire.AgentID
	boot wire.Epoch
}

type flowSum struct {
	sum   []float64
	count uint64
	late  uint64
}

// New returns an empty trace of the agent with the given id for one block.
func New[T wire.Float](id wire.AgentID) *Trace[T] {
	return &Trace[T]{id: id, flows: map[edgeEnd]*flowSum{}}
}

// MixingStarts implements d2d.ParameterTrace. MixingStarts stores x as the initial parameters.
func (t *Trace[T]) MixingStarts(boot wire.Epoch, x []T) {
	t.boot, t.params, t.start = boot, x, widened(x)
	if t.localStepSum == nil {
		t.localStepSum = make([]float64, len(x))
	}
}

// StepBegins implements d2d.ParameterTrace. StepBegins stores the parameters before the local step.
func (t *Trace[T]) StepBegins() { t.paramsBeforeStep = widened(t.params) }

// StepEnds implements d2d.ParameterTrace. It adds the change of the parameters to the sum of local steps.
func (t *Trace[T]) StepEnds() {
	for k, x := range t.params {
		t.localStepSum[k] += float64(x) - t.paramsBeforeStep[k]
	}
	t.paramsBeforeStep = nil
}

// FlowApplied implements d2d.ParameterTrace. It adds the mixing change weight·(theirs − own) to the sum of the edge to
// the neighbour.
func (t *Trace[T]) FlowApplied(neighbor wire.AgentID, boot wire.Epoch, weight T, own, theirs []T, late bool) {
	end := edgeEnd{neighbor, boot}
	f := t.flows[end]
	if f == nil {
		f = &flowSum{sum: make([]float64, len(t.params))}
		t.flows[end] = f
		t.order = append(t.order, end)
	}
	if f.count++; late {
		f.late++
	}
	if weight != 0 {
		for k := range f.sum {
			f.sum[k] += float64(T(weight * (theirs[k] - own[k])))
		}
	}
}

// BlockSums contains the sums of all changes to one agent's parameters in a block, as float64 values.
type BlockSums struct {
	ID           wire.AgentID
	Boot         wire.Epoch
	Start        []float64 // initial parameters x_0, or the first snapshot of an agent that joined during the block
	LocalStepSum []float64 // sum of all local steps −η·g (step size η, gradient g)
	Params       []float64 // current parameters; during a local step, the parameters before this step
	Edges        []EdgeSums
}

// EdgeSums holds the sum of all changes that mixing with one neighbour has made to the agent's parameters.
type EdgeSums struct {
	ID            wire.AgentID // id of the neighbour
	Boot          wire.Epoch   // start number of the neighbour's program
	Sum           []float64
	Flows         uint64 // number of changes in Sum
	LateFlowCount uint64 // number of changes in Sum that were applied after the step to which they belong
}

// Sums returns a copy of all sums recorded so far.
func (t *Trace[T]) Sums() BlockSums {
	s := BlockSums{ID: t.id, Boot: t.boot, Start: widened(t.start), LocalStepSum: widened(t.localStepSum),
		Params: widened(t.params)}
	if t.paramsBeforeStep != nil {
		s.Params = widened(t.paramsBeforeStep)
	}
	for _, end := range t.order {
		f := t.flows[end]
		s.Edges = append(s.Edges, EdgeSums{ID: end.id, Boot: end.boot, Sum: widened(f.sum), Flows: f.count,
			LateFlowCount: f.late})
	}
	return s
}

// Drift returns the relative error with which mixing conserves the sum of the parameters x over all agents. The error
// is the norm of Σx − Σ(x_0 + local steps), divided by the norm of Σ|x|. It excludes flows that only one end of an edge
// has applied. all contains the sums of every running agent.
//
// Drift returns an error if the two ends of an edge differ by more than one flow, because the loss on this edge is then
// unknown.
func Drift(all []BlockSums) (float64, error) {
	if len(all) == 0 {
		return 0, nil
	}
	of := make(map[wire.AgentID]*BlockSums, len(all))
	for i := range all {
		of[all[i].ID] = &all[i]
	}
	d := len(all[0].Params)
	sum, scale := make([]float64, d), make([]float64, d)
	for i := range all {
		b := &all[i]
		if len(b.Params) != d || len(b.Start) != d || len(b.LocalStepSum) != d {
			return 0, fmt.Errorf("sums of %s have %d parameters, want %d", b.ID, len(b.Params), d)
		}
		for k, x := range b.Params {
			sum[k] += x - b.Start[k] - b.LocalStepSum[k]
			scale[k] += math.Abs(x)
		}
		for j := range b.Edges {
			e := &b.Edges[j]
			if gone, err := hasUnmatchedFlows(b, e, of); err != nil {
				return 0, err
			} else if gone {
				add(sum, -1, e.Sum)
			}
		}
	}
	if drift := norm(sum); drift > 0 {
		return drift / norm(scale), nil
	}
	return 0, nil
}

// hasUnmatchedFlows reports whether the two ends of edge e have applied different numbers of flows, or whether the
// neighbour has stopped. The numbers may differ by one while a flow is in flight; a larger difference is an error.
func hasUnmatchedFlows(b *BlockSums, e *EdgeSums, of map[wire.AgentID]*BlockSums) (bool, error) {
	there := of[e.ID]
	if there == nil || there.Boot != e.Boot {
		return true, nil
	}
	for i := range there.Edges {
		if o := &there.Edges[i]; o.ID == b.ID && o.Boot == b.Boot {
			if e.Flows > o.Flows+1 || o.Flows > e.Flows+1 {
				return false, fmt.Errorf("edge %s %s: %d and %d flows were applied", b.ID, e.ID, e.Flows, o.Flows)
			}
			return e.Flows != o.Flows, nil
		}
	}
	return true, nil
}

// add adds c·x to dst element by element.
func add(dst []float64, c float64, x []float64) {
	for k, v := range x {
		dst[k] += c * v
	}
}

func norm(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum)
}

func widened[T wire.Float](x []T) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}
