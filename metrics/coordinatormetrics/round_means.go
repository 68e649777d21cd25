package coordinatormetrics

import (
	"math"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

var (
	lastRoundRiskBefore = observe.OptionalGauge("last_round_risk_before",
		"Unweighted mean risk (loss) of the base model over the agents with accepted updates, in the last published "+
			"training round.")
	lastRoundRiskAfter = observe.OptionalGauge("last_round_risk_after",
		"Mean risk (loss) over the agents with accepted updates, after their local steps, in the last published "+
			"training round.")
	lastRoundUpdateNorm = observe.OptionalGauge("last_round_update_norm",
		"Mean Euclidean norm of the accepted updates in the last published training round. Absent after a restart "+
			"within the round.")
	roundMeanMetrics = []*observe.Metric{lastRoundRiskBefore, lastRoundRiskAfter, lastRoundUpdateNorm}
)

// roundUpdateSums contains sums over the accepted updates of a round, from which the means for metrics are computed. It
// is required because no single event contains all updates of a round.
type roundUpdateSums struct {
	round                                wire.RoundID
	updateCount                          int
	riskBeforeSum, riskAfterSum, normSum float64
}

// addUpdate adds an update to the sums. The first update of a round resets the sums.
func (s *roundUpdateSums) addUpdate(round wire.RoundID, u *wire.Update, norm float64) {
	if s.round != round {
		*s = roundUpdateSums{round: round}
	}
	s.updateCount++
	s.riskBeforeSum += u.RiskBefore
	s.riskAfterSum += u.RiskAfter
	s.normSum += norm
}

// describeMeans sets the metrics to the unweighted means over all accepted updates of a round. If some updates were
// lost in a restart, it removes the means, because the mean of the remaining updates would look like a change.
func (s *roundUpdateSums) describeMeans(d *observe.EventDescription, round wire.RoundID, accepted int) {
	n := math.NaN() // if no update was accepted, the means are NaN
	if s.round == round && s.updateCount == accepted {
		n = float64(accepted)
	}
	d.SetGauge(lastRoundRiskBefore, s.riskBeforeSum/n)
	d.SetGauge(lastRoundRiskAfter, s.riskAfterSum/n)
	d.SetGauge(lastRoundUpdateNorm, s.normSum/n)
}
