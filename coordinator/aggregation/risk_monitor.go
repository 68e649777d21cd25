package aggregation

import (
	"fmt"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// RiskAssessment compares the risk of a model with the risks of the earlier models of its run.
type RiskAssessment struct {
	RiskDataSource string  // the data on which the risk was measured
	Risk           float64 // NaN or 0 if unknown
	LowestRisk     float64 // of the models so far
	// Exploded: the risk of this or an earlier model was over 10 times the lowest risk and above the first risk, and no
	// modelVector since had at most twice the lowest risk.
	Exploded       bool
	ExplosionBegan bool // Exploded is true since this model
}

// riskMonitor detects models that are much worse than earlier models of the same run. It knows the models since the
// coordinator was started.
type riskMonitor struct {
	newestVersion         wire.ModelVersion
	firstRisk, lowestRisk float64 // 0 = no risk is known yet
	exploded              bool
}

// assess compares a new model with the previous ones. The risk of a model is measured on the coordinator's held-out
// data or, without such data, is the median of the participants' risks.
func (r *riskMonitor) assess(m *ModelReady) RiskAssessment {
	a := RiskAssessment{RiskDataSource: "the agents' median", Risk: m.MedianReportedRisk}
	if m.HeldOutScore != nil {
		a.RiskDataSource, a.Risk = "held-out data", m.HeldOutScore.Risk
	}
	if m.Version < r.newestVersion { // another run
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

// describeRiskCondition logs a model that has become much worse, and keeps the condition for it.
func (a *RiskAssessment) describeRiskCondition(d *observe.EventDescription, version wire.ModelVersion) {
	const condition = "model risk"
	const remedy = "check the devices whose updates were clipped or left out last; `coordinator model rollback --to " +
		"VERSION` returns to an earlier model"
	switch {
	case a.ExplosionBegan:
		d.Log(observe.Warn, "model has become much worse", "version", version, "risk",
			observe.RoundToFourDigits(a.Risk),
			"of", a.RiskDataSource, "least", observe.RoundToFourDigits(a.LowestRisk))
		d.RaiseCondition(condition,
			fmt.Sprintf("model %d has become much worse: its risk (%s) is %.4g, and the lowest risk of "+
				"an earlier model is %.4g", version, a.RiskDataSource, a.Risk, a.LowestRisk), remedy)
	case a.Risk > 0 && !a.Exploded:
		d.ResolveCondition(condition)
	}
}
