package coordinatormetrics

import (
	"math"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

var (
	lastRoundRiskBefore = observe.OptionalGauge("last_round_risk_before",
		"Mean risk of the base model on the data of the agents whose updates were accepted, each agent counting "+
			"the same, in the training round published last; not known when a restart forgot some.")
	lastRoundRiskAfter = observe.OptionalGauge("last_round_risk_after",
		"Mean risk on the data of the agents whose updates were accepted, after their local steps, in the "+
			"training round published last; see coordinator_last_round_risk_before.")
	lastRoundUpdateNorm = observe.OptionalGauge("last_round_update_norm",
		"Mean Euclidean norm of the accepted updates of the training round published last; not known when a "+
			"restart forgot some.")
	roundMeanMetrics = []*observe.Metric{lastRoundRiskBefore, lastRoundRiskAfter, lastRoundUpdateNorm}
)

// roundUpdateSums are the sums over the accepted updates of a round, for the metrics above. They are kept here because
// no single event has all updates of a round.
type roundUpdateSums struct {
	round                                wire.RoundID
	updateCount                          int
	riskBeforeSum, riskAfterSum, normSum float64
}

// addUpdate adds an update. The first update of a round resets the sums.
func (s *roundUpdateSums) addUpdate(round wire.RoundID, u *wire.Update, norm float64) {
	if s.round != round {
		*s = roundUpdateSums{round: round}
	}
	s.updateCount++
	s.riskBeforeSum += u.RiskBefore
	s.riskAfterSum += u.RiskAfter
	s.normSum += norm
}

// describeMeans sets the metrics to the means over all accepted updates of a round, each with the same weight. After a
// restart only the later updates are known: then it removes the means, since the mean of a part would look like a
// change.
func (s *roundUpdateSums) describeMeans(d *observe.EventDescription, round wire.RoundID, accepted int) {
	n := math.NaN() // without updates there is no mean
	if s.round == round && s.updateCount == accepted {
		n = float64(accepted)
	}
	d.SetGauge(lastRoundRiskBefore, s.riskBeforeSum/n)
	d.SetGauge(lastRoundRiskAfter, s.riskAfterSum/n)
	d.SetGauge(lastRoundUpdateNorm, s.normSum/n)
}
