package host

import (
	"math"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
)

// ScoreMetrics are the metrics of how well a model does on held-out rows.
type ScoreMetrics struct{ risk, r2, accuracy, samples *observe.Metric }

// NewScoreMetrics returns the metrics for a model, which is named in the help texts.
func NewScoreMetrics(model string) ScoreMetrics {
	return ScoreMetrics{
		risk: observe.OptionalGauge("held_out_risk", "Risk of "+model+" on the held-out data."),
		r2: observe.OptionalGauge("held_out_r2",
			"Coefficient of determination of "+model+" on the held-out data, in regression."),
		accuracy: observe.OptionalGauge("held_out_accuracy_ratio",
			"Share of the held-out rows that "+model+" classifies rightly, in classification."),
		samples: observe.OptionalGauge("held_out_samples", "Rows of held-out data that it is scored on."),
	}
}

// List returns the metrics.
func (m ScoreMetrics) List() []*observe.Metric {
	return []*observe.Metric{m.risk, m.r2, m.accuracy, m.samples}
}

// Describe sets the metrics to a score. Without a score (nil) they have no series.
func (m ScoreMetrics) Describe(d *observe.Description, s *learner.Score) {
	if s == nil {
		for _, metric := range m.List() {
			d.Clear(metric)
		}
		return
	}
	d.Set(m.risk, s.Risk)
	d.Set(m.r2, s.R2)
	d.Set(m.accuracy, s.Accuracy)
	d.Set(m.samples, float64(s.Samples))
}

// ScoreAttributes returns the log attributes r2 and accuracy, as far as the score has them. The score may be nil.
func ScoreAttributes(s *learner.Score) (attributes []any) {
	if s != nil && !math.IsNaN(s.R2) {
		attributes = append(attributes, "r2", observe.Rounded(s.R2))
	}
	if s != nil && !math.IsNaN(s.Accuracy) {
		attributes = append(attributes, "accuracy", observe.Rounded(s.Accuracy))
	}
	return attributes
}
