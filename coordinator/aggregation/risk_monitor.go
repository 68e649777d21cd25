package aggregation

import (
	"fmt"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// RiskAssessment compares the risk of a model with the risks of earlier models of the run.
type RiskAssessment struct {
	RiskDataSource string  // name of the data on which the risk was measured
	Risk           float64 // risk of the model; NaN or 0 if unknown
	LowestRisk     float64 // lowest risk of the run's models so far
	// Exploded is true if a model's risk exceeded the first risk and 10 times the lowest risk. It remains true until a
	// model's risk is at most twice the lowest risk.
	Exploded       bool
	ExplosionBegan bool // true if this model caused Exploded to become true
}

// riskMonitor detects models that are much worse than earlier models of the same run. It considers only models since
// the coordinator started.
type riskMonitor struct {
	newestVersion         wire.ModelVersion
	firstRisk, lowestRisk float64 // 0 if no risk is known yet
	exploded              bool
}

// assess compares a new model with the previous models. It uses the risk on held-out data. Without such data it uses
// the median of the participants' risks.
func (r *riskMonitor) assess(m *ModelReady) RiskAssessment {
	a := RiskAssessment{RiskDataSource: "median of the values reported by agents", Risk: m.MedianReportedRisk}
	if m.HeldOutScore != nil {
		a.RiskDataSource, a.Risk = "held-out data", m.HeldOutScore.Risk
	}
	if m.Version < r.newestVersion { // a new run has begun
		*r = riskMonitor{}
	}
	r.newestVersion = m.Version
	before := r.exploded
	switch {
	case r.firstRisk > 0 && a.Risk > max(10*r.lowestRisk, r.firstRisk):
		r.exploded = true
	case a.Risk > 0:
		if r.firstRisk == 0 {
			r.firstRisk, r.lowestRisk = a.Risk, a.Risk
		}
		r.lowestRisk = min(r.lowestRisk, a.Risk)
		r.exploded = r.exploded && a.Risk > 2*r.lowestRisk
	}
	a.LowestRisk, a.Exploded, a.ExplosionBegan = r.lowestRisk, r.exploded, r.exploded && !before
	return a
}

// describeRiskCondition logs a model that has become much worse, and raises or resolves the condition.
func (a *RiskAssessment) describeRiskCondition(d *observe.EventDescription, version wire.ModelVersion) {
	const condition = "model risk"
	const remedy = "check the devices whose updates were clipped or left out last; to return to an earlier model, " +
		"run `coordinator model rollback --to VERSION`"
	switch {
	case a.ExplosionBegan:
		d.Log(observe.Warn, "risk (mean loss) of the model has increased sharply", "version", version, "risk",
			observe.RoundToFourDigits(a.Risk),
			"risk_source", a.RiskDataSource, "lowest_risk", observe.RoundToFourDigits(a.LowestRisk))
		d.RaiseCondition(condition,
			fmt.Sprintf("model %d is much worse than an earlier model: its risk (mean loss; %s) is %.4g, but the "+
				"lowest earlier risk is %.4g", version, a.RiskDataSource, a.Risk, a.LowestRisk), remedy)
	case a.Risk > 0 && !a.Exploded:
		d.ResolveCondition(condition)
	}
}
