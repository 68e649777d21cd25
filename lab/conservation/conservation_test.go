package conservation

import (
	"math"
	"strings"
	"testing"
)

// TestDrift checks that the drift is zero if the sums of all agents match. If a flow is missing, the drift equals the
// missing part.
func TestDrift(t *testing.T) {
	// Agents a and b exchanged two flows of 0.5, and a third flow from b to a is in flight. Agent c stopped after it
	// had applied a flow of 0.25 from b.
	a := BlockSums{ID: "a", Boot: 1, Start: []float64{1, 0}, LocalStepSum: []float64{1, 0}, Params: []float64{3, 0},
		Edges: []EdgeSums{{ID: "b", Boot: 1, Sum: []float64{1, 0}, Flows: 2}}}
	b := BlockSums{ID: "b", Boot: 1, Start: []float64{5, 1}, LocalStepSum: []float64{0, 1}, Params: []float64{3.625, 2},
		Edges: []EdgeSums{
			{ID: "a", Boot: 1, Sum: []float64{-1.125, 0}, Flows: 3},
			{ID: "c", Boot: 1, Sum: []float64{-0.25, 0}, Flows: 1},
		}}
	for _, tt := range []struct {
		name   string
		change func(a, b *BlockSums)
		want   float64
		err    string
	}{
		{"balanced", func(a, b *BlockSums) {}, 0, ""},
		{"something was added", func(a, b *BlockSums) { a.Params[0] += 0.5 }, 0.5 / math.Hypot(7.125, 2), ""},
		{"a flow of one end only", func(a, b *BlockSums) { b.Edges[0].Flows = 2 }, 0.125 / math.Hypot(6.625, 2), ""},
		{"a step that was not recorded", func(a, b *BlockSums) { b.LocalStepSum[1] = 0 }, 1 / math.Hypot(6.625, 2), ""},
		{"ends too far apart", func(a, b *BlockSums) { b.Edges[0].Flows = 4 }, 0, "edge a b: 2 and 4"},
		{"a new start of one end", func(a, b *BlockSums) {
			a.Boot, a.Start, a.LocalStepSum, a.Params, a.Edges = 2, []float64{9, 9}, []float64{0, 0}, []float64{9, 9},
				nil
		}, 0, ""},
		{"flows with an earlier start", func(a, b *BlockSums) {
			a.Edges, a.Params[0] = append(a.Edges, EdgeSums{ID: "b", Sum: []float64{4, 0}, Flows: 1}), 7
		}, 0, ""},
		{"a vector of another length", func(a, b *BlockSums) { b.Params = b.Params[:1] }, 0, "sums of b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := a.clone(), b.clone()
			tt.change(&a, &b)
			got, err := Drift([]BlockSums{a, b})
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if math.Abs(got-tt.want) > 1e-15 {
				t.Errorf("drift %v, want %v", got, tt.want)
			}
		})
	}
	if d, err := Drift(nil); d != 0 || err != nil {
		t.Errorf("nobody drifts by %v, %v", d, err)
	}
}

func (b BlockSums) clone() BlockSums {
	b.Start, b.LocalStepSum, b.Params = widened(b.Start), widened(b.LocalStepSum), widened(b.Params)
	b.Edges = append([]EdgeSums(nil), b.Edges...)
	return b
}
