package d2d

import (
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/wire"
)

// FlowLedger contains the sums of one agent's block, in float64. The ledgers of all agents show whether mixing
// conserved the sum of the parameters.
type FlowLedger struct {
	ID    wire.AgentID
	Boot  wire.Epoch
	Start []float64 // x_0: of an agent that joined a block, the snapshot that it began with
	Local []float64 // −Σηg: the sum of what local steps changed
	X     []float64 // the parameters now
	Edges []EdgeLedger
	Stats Stats
}

// EdgeLedger contains the flows that were applied at one end of an edge.
type EdgeLedger struct {
	ID    wire.AgentID // the neighbour
	Boot  wire.Epoch   // the start of its program that the edge is to
	Sum   []float64    // of the flows with that start of it
	Flows uint64       // their number
	Late  uint64       // of these, after the step of the snapshot
	Past  []float64    // the sum of the flows with earlier starts; nil if there are none
}

// Drift returns how far mixing was from conserving the sum of the parameters:
// Σx − Σ(x_0 − Σηg) − flows on edges to agents without books, or in flight,
// over Σ|x|, as a ratio of Euclidean norms. The books are those of all agents
// that live, taken when none of them is in the middle of a local step.
//
// An edge whose two ends are more than one flow apart is an error: no
// accounting can tell what was lost on it.
func Drift(all []FlowLedger) (float64, error) {
	if len(all) == 0 {
		return 0, nil
	}
	of := make(map[wire.AgentID]*FlowLedger, len(all))
	for i := range all {
		of[all[i].ID] = &all[i]
	}
	d := len(all[0].X)
	sum, scale := make([]float64, d), make([]float64, d)
	for i := range all {
		b := &all[i]
		if len(b.X) != d || len(b.Start) != d || len(b.Local) != d {
			return 0, fmt.Errorf("books of %s: %d parameters, want %d", b.ID, len(b.X), d)
		}
		for k, x := range b.X {
			sum[k] += x - b.Start[k] - b.Local[k]
			scale[k] += math.Abs(x)
		}
		for j := range b.Edges {
			e := &b.Edges[j]
			add(sum, -1, e.Past)
			if gone, err := unmatched(b, e, of); err != nil {
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

// unmatched tells whether the flows of one end of an edge are not, or not
// all, those of the other: nobody is there, or one flow is in flight.
func unmatched(b *FlowLedger, e *EdgeLedger, of map[wire.AgentID]*FlowLedger) (bool, error) {
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

// ledger is what a mixer keeps of its own steps for the books.
type ledger struct{ start, local, before []float64 }

func widened[T wire.Float](x []T) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// FlowLedger returns the books, without the agent's ID, if the configuration asks
// for a ledger. Their contents are the caller's.
func (m *mixer[T]) FlowLedger() FlowLedger {
	b := FlowLedger{Stats: m.stats, Boot: m.cfg.Boot, Start: widened(m.ledger.start), Local: widened(m.ledger.local),
		X: widened(m.x)}
	if m.state == computing { // the parameters are the host's
		copy(b.X, m.ledger.before)
	}
	for _, e := range m.edges {
		b.Edges = append(b.Edges, EdgeLedger{
			ID: e.id, Boot: e.boot, Sum: widened(e.flow), Flows: e.applied, Late: e.late,
			Past: append([]float64(nil), e.past...),
		})
	}
	return b
}
