package metrics

import (
	"math"

	"github.com/fedmesh/fedmesh/learner"
)

// HeldOut is how well a model does on held-out data.
type HeldOut struct{ risk, r2, accuracy, samples OptionalGauge }

// NewHeldOut registers the score of a model, which is named in the help texts.
func NewHeldOut(r Registrar, model string) HeldOut {
	return HeldOut{
		risk: r.OptionalGauge("held_out_risk", "Risk of "+model+" on the held-out data."),
		r2: r.OptionalGauge("held_out_r2",
			"Coefficient of determination of "+model+" on the held-out data, in regression."),
		accuracy: r.OptionalGauge("held_out_accuracy_ratio",
			"Share of the held-out rows that "+model+" classifies rightly, in classification."),
		samples: r.OptionalGauge("held_out_samples", "Rows of held-out data that it is scored on."),
	}
}

// Set shows a score, or that there is none.
func (h *HeldOut) Set(s *learner.Score) {
	if s == nil {
		nan := math.NaN()
		s = &learner.Score{Risk: nan, R2: nan, Accuracy: nan}
		h.samples.Set(nan)
	} else {
		h.samples.Set(float64(s.Samples))
	}
	h.risk.Set(s.Risk)
	h.r2.Set(s.R2)
	h.accuracy.Set(s.Accuracy)
}
