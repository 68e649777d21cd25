package aggregation

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/wire"
)

// TestRiskMonitor checks that a much worse model is reported once, until models are good again.
func TestRiskMonitor(t *testing.T) {
	unknown := math.NaN()
	var r riskMonitor
	for k, x := range []struct {
		risk            float64
		heldOut         bool
		began, exploded bool
	}{
		{unknown, false, false, false}, {4, true, false, false}, {0.2, true, false, false},
		{3.9, true, false, false}, // over ten times the lowest risk, but not above the first
		{1e58, true, true, true}, {1e59, true, false, true}, {unknown, false, false, true},
		{math.Inf(1), true, false, true}, {0.3, true, false, false}, {5, true, true, true},
	} {
		m := ModelReady{Version: wire.ModelVersion(k), MedianReportedRisk: x.risk}
		source := "median of the values reported by agents"
		if x.heldOut {
			m.MedianReportedRisk, m.HeldOutScore = unknown, &learner.Score{Risk: x.risk}
			source = "held-out data"
		}
		if a := r.assess(&m); a.ExplosionBegan != x.began || a.Exploded != x.exploded || a.RiskDataSource != source {
			t.Errorf("model %d, risk %v: %+v", k, x.risk, a)
		}
	}
	if a := r.assess(&ModelReady{Version: 1, MedianReportedRisk: 100}); a.Exploded {
		t.Errorf("first model of another run: %+v", a)
	}
}
