package learner

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestLabelSets checks that a loss accepts exactly the targets in its set of valid targets.
func TestLabelSets(t *testing.T) {
	targets := []float64{-2, -1, -0.5, 0, 0.5, 1, 2, 3, 1e9}
	for risk := range lossConstructorByKind[float64]() {
		a := Architecture{Inputs: 1, Outputs: 1, Risk: risk, HuberDelta: 1}
		if risk == spec.LossSoftmax {
			a.Outputs = 3
		}
		set, loss := a.LabelSet(), newLoss[float64](a)
		for _, y := range targets {
			mapped := loss.MapLabels([]float64{y}, a.Outputs, &LabelHistory{}) == nil
			if mapped != set.Contains(y) {
				t.Errorf("%s: the loss maps the target %v: %v; the set contains it: %v", risk, y, mapped,
					set.Contains(y))
			}
		}
		if none := len(loss.ClassProbabilities(nil, make([]float64, a.Outputs))) == 0; none != risk.IsRegression() {
			t.Errorf("%s: a regression: %v; it has no classes: %v", risk, risk.IsRegression(), none)
		}
		everything := set == (LabelSet{})
		if risk.StandardizesTarget() && !everything {
			t.Errorf("%s: the target is standardised, but only %v are valid", risk, set)
		}
		if everything != (set.String() == "") || everything != (set.Contains(math.Pi) && set.Contains(-math.Pi)) {
			t.Errorf("%s: the set %+v is described as %q", risk, set, set)
		}
	}
	if set := (Architecture{}).LabelSet(); set != (LabelSet{}) {
		t.Errorf("an external model has the targets %+v", set)
	}
}
