// Package conservation checks that mixing conserves the sum of the parameters of all agents. A Trace follows the mixing
// of one agent's block; the sums of all agents give the drift.
package conservation

import (
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/wire"
)

// Trace follows the mixing of one agent's block. It implements d2d.ParameterTrace.
type Trace[T wire.Float] struct {
	id               wire.AgentID
	boot             wire.Epoch // of the agent
	params           []T        // the parameters, which mixing changes in place
	start            []float64  // x_0
	localStepSum     []float64  // −Σηg
	paramsBeforeStep []float64  // the parameters when the local step under way began; nil between two steps
	flows            map[edgeEnd]*flowSum
	order            []edgeEnd // the keys of flows, by their first flow
}

// edgeEnd names the other end of an edge: one start of a neighbour's program.
type edgeEnd struct {
	id   wire.AgentID
	boot wire.Epoch
}

type flowSum struct {
	sum   []float64
	count uint64
	late  uint64
}

// New returns a trace of the agent with this id, for one block.
func New[T wire.Float](id wire.AgentID) *Trace[T] {
	return &Trace[T]{id: id, flows: map[edgeEnd]*flowSum{}}
}

// MixingStarts implements d2d.ParameterTrace.
func (t *Trace[T]) MixingStarts(boot wire.Epoch, x []T) {
	t.boot, t.params, t.start = boot, x, widened(x)
	if t.localStepSum == nil {
		t.localStepSum = make([]float64, len(x))
	}
}

// StepBegins implements d2d.ParameterTrace.
func (t *Trace[T]) StepBegins() { t.paramsBeforeStep = widened(t.params) }

// StepEnds implements d2d.ParameterTrace.
func (t *Trace[T]) StepEnds() {
	for k, x := range t.params {
		t.localStepSum[k] += float64(x) - t.paramsBeforeStep[k]
	}
	t.paramsBeforeStep = nil
}

// FlowApplied implements d2d.ParameterTrace.
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

// BlockSums contains what changed the parameters of one agent in a block, in float64.
type BlockSums struct {
	ID           wire.AgentID
	Boot         wire.Epoch
	Start        []float64 // x_0: of an agent that joined a block, the snapshot with which it began
	LocalStepSum []float64 // −Σηg: the changes by local steps
	Params       []float64 // the parameters now; during a local step, those before it
	Edges        []EdgeSums
}

// EdgeSums contains the flows that one end of an edge has applied.
type EdgeSums struct {
	ID            wire.AgentID // the neighbour
	Boot          wire.Epoch   // the start of its program
	Sum           []float64
	Flows         uint64 // number of flows in Sum
	LateFlowCount uint64 // of these, after the step of their snapshots
}

// Sums returns a copy of the sums so far.
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

// Drift returns how far mixing was from conserving the sum of the parameters, as a ratio of Euclidean norms:
// Σx − Σ(x_0 − Σηg) − (flows on edges to agents that are not in all, and flows in flight), over Σ|x|. all has the sums
// of every agent that lives.
//
// If the two ends of an edge differ by more than one flow, Drift returns an error, since the loss on it is not known.
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
			return 0, fmt.Errorf("sums of %s: %d parameters, want %d", b.ID, len(b.Params), d)
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

// hasUnmatchedFlows reports whether one end of an edge has applied flows that the other end has not: the other agent is
// gone, or one flow is in flight.
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

// add adds c·x to dst; nil is zero.
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
