package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/wire"
)

// outcome has the metrics of the model and its quality.
type outcome struct {
	modelVersion, modelBytes     measure
	statisticsRows               measure
	riskBefore, riskAfter, norms measure
	spread, fold, step           measure
	held                         heldOut
	foldTook                     prometheus.Observer
	mended                       gaugeSet // by file
	ahead                        prometheus.Gauge
	sums                         sums
}

var foldBuckets = []float64{1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 120}

func newOutcome(r registrar) outcome {
	return outcome{
		modelVersion: r.measure("model_version", "Version of the newest model: the number of aggregations behind it."),
		mended: r.gaugeBy("state_damaged",
			"Whether a file of the state folder was damaged or missing at the start (1) or not (0): it was "+
				"recovered, or the run went back to an older model; the log says which.",
			"file", words(coordinator.StateFiles())),
		ahead: r.gauge("models_ahead",
			"Versions by which models on disk were newer than the journal at the start, as after an older copy of it "+
				"was put back."),
		modelBytes: r.measure("model_bytes", "Size of the model made last."),
		statisticsRows: r.measure("statistics_rows",
			"Rows of all agents together behind the standardisation of the task."),
		riskBefore: r.measure("last_round_risk_before",
			"Mean risk of the base model on the data of the agents whose updates were accepted, each agent counting "+
				"the same, in the training round published last; not known when a restart forgot some."),
		riskAfter: r.measure("last_round_risk_after",
			"Mean risk on the data of the agents whose updates were accepted, after their local steps, in the "+
				"training round published last; see coordinator_last_round_risk_before."),
		norms: r.measure("last_round_update_norm",
			"Mean Euclidean norm of the accepted updates of the training round published last; not known when a "+
				"restart forgot some."),
		spread: r.measure("last_round_update_spread",
			"Root mean square of the Euclidean distances of the updates from their mean, in the training round "+
				"published last; where agents mix, their consensus distance."),
		fold: r.measure("last_round_fold_norm",
			"Euclidean norm of what the rule has made of the updates, in the training round published last."),
		step: r.measure("last_round_step_norm",
			"Euclidean norm of the model's step that the server's optimiser has made of the fold, in the training "+
				"round published last; without an optimiser it is that of the fold."),
		held: newHeldOut(r, "the newest model"),
		foldTook: r.histogram("fold_duration_seconds",
			"Time that folding a round's updates into a model took, scoring it included.", foldBuckets),
	}
}

// sums are of the accepted updates of one round.
type sums struct {
	round               wire.RoundID
	updates             int
	before, after, norm float64
}

// add adds an update; the first one of a round resets the sums.
func (s *sums) add(round wire.RoundID, u *wire.Update, norm float64) {
	if s.round != round {
		*s = sums{round: round}
	}
	s.updates++
	s.before += u.RiskBefore
	s.after += u.RiskAfter
	s.norm += norm
}

// meanOf shows the means over all accepted updates of a round, each counting
// the same, or nothing: after a restart only the later updates are known here,
// and the mean of a part would look like a change.
func (o *outcome) meanOf(round wire.RoundID, accepted int) {
	n := math.NaN()
	if o.sums.round == round && o.sums.updates == accepted {
		n = float64(accepted) // without updates there is no mean
	}
	o.riskBefore.set(o.sums.before / n)
	o.riskAfter.set(o.sums.after / n)
	o.norms.set(o.sums.norm / n)
}

// uploads has the metrics of the transfers of updates.
type uploads struct {
	receiving, queued, buffered prometheus.Gauge
	missingParts                prometheus.Gauge
}

func newUploads(r registrar) uploads {
	return uploads{
		receiving: r.gauge("transfers_receiving", "Updates whose chunks are coming in."),
		queued:    r.gauge("transfers_queued", "Updates that were offered and wait for their turn."),
		missingParts: r.gauge("blob_missing_parts",
			"Parts that the broker did not return when the last task or model for the agents to fetch was read back "+
				"from it; they are published again."),
		buffered: r.gauge("transfers_buffered_bytes",
			"Length of the updates that are received or being stored, in memory or in files."),
	}
}
