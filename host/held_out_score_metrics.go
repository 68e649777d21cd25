package host

import (
	"math"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
)

// HeldOutScoreMetrics contains the metrics of a model's score on held-out rows.
type HeldOutScoreMetrics struct{ risk, r2, accuracy, samples *observe.Metric }

// NewHeldOutScoreMetrics returns the metrics for the score of a model on held-out rows. The parameter model is the name
// of the model in the help texts of the metrics.
func NewHeldOutScoreMetrics(model string) HeldOutScoreMetrics {
	return HeldOutScoreMetrics{
		risk: observe.OptionalGauge("held_out_risk", "Risk (mean loss) of "+model+" on the held-out data."),
		r2: observe.OptionalGauge("held_out_r2",
			"Coefficient of determination of "+model+" on the held-out data. Only for regression."),
		accuracy: observe.OptionalGauge("held_out_accuracy_ratio",
			"Accuracy of "+model+" on the held-out data. Only for classification."),
		samples: observe.OptionalGauge("held_out_samples", "Number of held-out rows."),
	}
}

// List returns all metrics of m.
func (m HeldOutScoreMetrics) List() []*observe.Metric {
	return []*observe.Metric{m.risk, m.r2, m.accuracy, m.samples}
}

// Describe sets the metrics to the score s. If s is nil, it removes their series.
func (m HeldOutScoreMetrics) Describe(d *observe.EventDescription, s *learner.Score) {
	if s == nil {
		for _, metric := range m.List() {
			d.ClearGauge(metric)
		}
		return
	}
	d.SetGauge(m.risk, s.Risk)
	d.SetGauge(m.r2, s.R2)
	d.SetGauge(m.accuracy, s.Accuracy)
	d.SetGauge(m.samples, float64(s.Samples))
}

// ScoreLogAttributes returns the log attributes r2 and accuracy for the score s, if they are known. s may be nil.
func ScoreLogAttributes(s *learner.Score) (attributes []any) {
	if s != nil && !math.IsNaN(s.R2) {
		attributes = append(attributes, "r2", observe.RoundToFourDigits(s.R2))
	}
	if s != nil && !math.IsNaN(s.Accuracy) {
		attributes = append(attributes, "accuracy", observe.RoundToFourDigits(s.Accuracy))
	}
	return attributes
}
