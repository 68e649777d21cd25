package coordinatormetrics

import (
	"math"

	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/wire"
)

// roundMeans has the metrics of means over the accepted updates of a round. No event has the sums: each update is an
// event, and so is the end of the round.
type roundMeans struct {
	riskBefore, riskAfter, updateNorm metrics.OptionalGauge
	sums                              updateSums
}

// updateSums are sums over the accepted updates of one round.
type updateSums struct {
	round                       wire.RoundID
	updates                     int
	riskBefore, riskAfter, norm float64
}

func newRoundMeans(r metrics.Registrar) *roundMeans {
	return &roundMeans{
		riskBefore: r.OptionalGauge("last_round_risk_before",
			"Mean risk of the base model on the data of the agents whose updates were accepted, each agent counting "+
				"the same, in the training round published last; not known when a restart forgot some."),
		riskAfter: r.OptionalGauge("last_round_risk_after",
			"Mean risk on the data of the agents whose updates were accepted, after their local steps, in the "+
				"training round published last; see coordinator_last_round_risk_before."),
		updateNorm: r.OptionalGauge("last_round_update_norm",
			"Mean Euclidean norm of the accepted updates of the training round published last; not known when a "+
				"restart forgot some."),
	}
}

// add adds an update. The first update of a round resets the sums.
func (m *roundMeans) add(round wire.RoundID, u *wire.Update, norm float64) {
	if m.sums.round != round {
		m.sums = updateSums{round: round}
	}
	m.sums.updates++
	m.sums.riskBefore += u.RiskBefore
	m.sums.riskAfter += u.RiskAfter
	m.sums.norm += norm
}

// show sets the means over all accepted updates of a round, each with the same weight. After a restart only the later
// updates are known: then it removes the means, since the mean of a part would look like a change.
func (m *roundMeans) show(round wire.RoundID, accepted int) {
	n := math.NaN() // without updates there is no mean
	if m.sums.round == round && m.sums.updates == accepted {
		n = float64(accepted)
	}
	m.riskBefore.Set(m.sums.riskBefore / n)
	m.riskAfter.Set(m.sums.riskAfter / n)
	m.updateNorm.Set(m.sums.norm / n)
}
