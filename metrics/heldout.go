package metrics

import (
	"math"

	"github.com/fedmesh/fedmesh/learner"
)

// heldOut is how well a model does on held-out data.
type heldOut struct{ risk, r2, accuracy, samples measure }

// newHeldOut registers the score of a model, which is named in the help texts.
func newHeldOut(r registrar, model string) heldOut {
	return heldOut{
		risk: r.measure("held_out_risk", "Risk of "+model+" on the held-out data."),
		r2: r.measure("held_out_r2",
			"Coefficient of determination of "+model+" on the held-out data, in regression."),
		accuracy: r.measure("held_out_accuracy_ratio",
			"Share of the held-out rows that "+model+" classifies rightly, in classification."),
		samples: r.measure("held_out_samples", "Rows of held-out data that it is scored on."),
	}
}

// set shows a score, or that there is none.
func (h *heldOut) set(s *learner.Score) {
	if s == nil {
		nan := math.NaN()
		s = &learner.Score{Risk: nan, R2: nan, Accuracy: nan}
		h.samples.set(nan)
	} else {
		h.samples.set(float64(s.Samples))
	}
	h.risk.set(s.Risk)
	h.r2.set(s.R2)
	h.accuracy.set(s.Accuracy)
}
