package coordinatormetrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/wire"
)

// modelMetrics has the metrics of the model and its quality.
type modelMetrics struct {
	modelVersion, modelBytes              metrics.OptionalGauge
	statisticsRows                        metrics.OptionalGauge
	riskBefore, riskAfter, updateNormMean metrics.OptionalGauge
	updateSpread, aggregateNorm, stepNorm metrics.OptionalGauge
	heldOutScore                          metrics.HeldOut
	foldDuration                          prometheus.Observer
	damagedFiles                          metrics.GaugeSet // by file
	modelsAhead                           prometheus.Gauge
	sums                                  updateSums
}

var foldBuckets = []float64{1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 120}

func newModelMetrics(r metrics.Registrar) modelMetrics {
	return modelMetrics{
		modelVersion: r.OptionalGauge("model_version",
			"Version of the newest model: the number of aggregations behind it."),
		damagedFiles: r.GaugeByLabel("state_damaged",
			"Whether a file of the state folder was damaged or missing at the start (1) or not (0): it was "+
				"recovered, or the run went back to an older model; the log says which.",
			"file", metrics.ToStrings(coordinator.StateFiles())),
		modelsAhead: r.Gauge("models_ahead",
			"Versions by which models on disk were newer than the journal at the start, as after an older copy of it "+
				"was put back."),
		modelBytes: r.OptionalGauge("model_bytes", "Size of the model made last."),
		statisticsRows: r.OptionalGauge("statistics_rows",
			"Rows of all agents together behind the standardisation of the task."),
		riskBefore: r.OptionalGauge("last_round_risk_before",
			"Mean risk of the base model on the data of the agents whose updates were accepted, each agent counting "+
				"the same, in the training round published last; not known when a restart forgot some."),
		riskAfter: r.OptionalGauge("last_round_risk_after",
			"Mean risk on the data of the agents whose updates were accepted, after their local steps, in the "+
				"training round published last; see coordinator_last_round_risk_before."),
		updateNormMean: r.OptionalGauge("last_round_update_norm",
			"Mean Euclidean norm of the accepted updates of the training round published last; not known when a "+
				"restart forgot some."),
		updateSpread: r.OptionalGauge("last_round_update_spread",
			"Root mean square of the Euclidean distances of the updates from their mean, in the training round "+
				"published last; where agents mix, their consensus distance."),
		aggregateNorm: r.OptionalGauge("last_round_fold_norm",
			"Euclidean norm of what the rule has made of the updates, in the training round published last."),
		stepNorm: r.OptionalGauge("last_round_step_norm",
			"Euclidean norm of the model's step that the server's optimiser has made of the fold, in the training "+
				"round published last; without an optimiser it is that of the fold."),
		heldOutScore: metrics.NewHeldOut(r, "the newest model"),
		foldDuration: r.Histogram("fold_duration_seconds",
			"Time that folding a round's updates into a model took, scoring it included.", foldBuckets),
	}
}

// updateSums are of the accepted updates of one round.
type updateSums struct {
	round                       wire.RoundID
	updates                     int
	riskBefore, riskAfter, norm float64
}

// add adds an update; the first one of a round resets the sums.
func (s *updateSums) add(round wire.RoundID, u *wire.Update, norm float64) {
	if s.round != round {
		*s = updateSums{round: round}
	}
	s.updates++
	s.riskBefore += u.RiskBefore
	s.riskAfter += u.RiskAfter
	s.norm += norm
}

// showRoundMeans shows the means over all accepted updates of a round, each counting
// the same, or nothing: after a restart only the later updates are known here,
// and the mean of a part would look like a change.
func (o *modelMetrics) showRoundMeans(round wire.RoundID, accepted int) {
	n := math.NaN()
	if o.sums.round == round && o.sums.updates == accepted {
		n = float64(accepted) // without updates there is no mean
	}
	o.riskBefore.Set(o.sums.riskBefore / n)
	o.riskAfter.Set(o.sums.riskAfter / n)
	o.updateNormMean.Set(o.sums.norm / n)
}

// uploads has the metrics of the transfers of updates.
type uploads struct {
	receiving, queued, buffered prometheus.Gauge
	missingBlobChunks           prometheus.Gauge
}

func newUploads(r metrics.Registrar) uploads {
	return uploads{
		receiving: r.Gauge("transfers_receiving", "Updates whose chunks are coming in."),
		queued:    r.Gauge("transfers_queued", "Updates that were offered and wait for their turn."),
		missingBlobChunks: r.Gauge("blob_missing_parts",
			"Parts that the broker did not return when the last task or model for the agents to fetch was read back "+
				"from it; they are published again."),
		buffered: r.Gauge("transfers_buffered_bytes",
			"Length of the updates that are received or being stored, in memory or in files."),
	}
}
