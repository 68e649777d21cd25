package learner

import (
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestParts checks that a parameter vector can be divided into shared and own tensors and joined to the original
// vector, in the order of the layout.
func TestParts(t *testing.T) {
	a := Architecture{Inputs: 2, HiddenUnits: []int{2}, Outputs: 2, Activation: spec.ActivationTanh,
		Risk:    spec.LossSoftmax,
		HasBias: true} // layer0.weight 0–3, layer0.bias 4–5, layer1.weight 6–9, layer1.bias 10–11
	for _, tt := range []struct {
		names []string
		own   []float64
	}{
		{nil, nil},
		{[]string{LastLayerName}, []float64{6, 7, 8, 9, 10, 11}},
		{[]string{"layer1"}, []float64{6, 7, 8, 9, 10, 11}},
		{[]string{"layer0.bias", LastLayerName}, []float64{4, 5, 6, 7, 8, 9, 10, 11}},
		{[]string{"layer0.weight", "layer1.weight"}, []float64{0, 1, 2, 3, 6, 7, 8, 9}},
		{[]string{"layer0", "layer1"}, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	} {
		p := a.NewParameterSplit(tt.names)
		w := make([]float64, 12)
		for j := range w {
			w[j] = float64(j)
		}
		shared, own := make([]float64, p.SharedElementCount()), make([]float64, p.OwnElementCount())
		SplitParameters(shared, own, p, w)
		if !slices.Equal(own, tt.own) || slices.ContainsFunc(shared, func(v float64) bool {
			return slices.Contains(own, v)
		}) || !slices.IsSorted(shared) || len(own)+len(shared) != 12 {
			t.Errorf("%v: shared %v, own %v", tt.names, shared, own)
		}
		again := make([]float64, 12)
		if JoinParameters(again, p, shared, own); !slices.Equal(again, w) {
			t.Errorf("%v: joined %v", tt.names, again)
		}
		if SplitParameters(w[:p.SharedElementCount()], nil, p, w); !slices.Equal(w[:p.SharedElementCount()], shared) {
			t.Errorf("%v: in place %v, want %v", tt.names, w[:p.SharedElementCount()], shared)
		}
	}
}
