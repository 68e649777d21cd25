package coordinatormetrics

import (
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/stop"
)

// stopMetrics has the metrics of how far a run has come to its end, and of what its next round waits for.
type stopMetrics struct {
	ended                            metrics.GaugeSet // by reason
	risk, bestRisk, bestVersion      metrics.OptionalGauge
	withoutImprovement, carriedBytes metrics.OptionalGauge
	waitReason                       metrics.GaugeSet // by what
	agentsWithNewRows                metrics.OptionalGauge
}

func newStops(r metrics.Registrar) stopMetrics {
	return stopMetrics{
		ended: r.GaugeByLabel("run_ended",
			"Why the run is finished: 1 for the reason, 0 for all others, and for all while "+
				"it goes on.", "reason", metrics.ToStrings(stop.Reasons())),
		risk: r.OptionalGauge("run_risk",
			"The risk that round.stop judged last: on held-out data, else the mean of the "+
				"last 5 medians of what participants told."),
		bestRisk:    r.OptionalGauge("run_best_risk", "The lowest of these risks that counted as an improvement."),
		bestVersion: r.OptionalGauge("run_best_version", "Version of the model whose aggregation had it."),
		withoutImprovement: r.OptionalGauge("run_aggregations_without_improvement",
			"Aggregations since then; round.stop.patience bounds them."),
		carriedBytes: r.OptionalGauge("run_bytes",
			"Bytes of the models that participants fetched and of the updates that were "+
				"accepted, since round.stop counts them."),
		waitReason: r.GaugeByLabel("schedule_waiting",
			"What the next round waits for by round.schedule: 1 for a window, or "+
				"new rows of agents, 0 for the other, and for both while it does not wait.", "for",
			metrics.ToStrings(round.WaitReasons())),
		agentsWithNewRows: r.OptionalGauge("agents_with_new_rows",
			"Agents with enough new rows for round.schedule.new_rows, when the "+
				"next round last waited for them."),
	}
}

func (s *stopMetrics) recordStopProgress(f round.StopProgressReported) {
	s.carriedBytes.Set(float64(f.Bytes))
	if f.Judged > 0 {
		s.risk.Set(f.Risk)
		s.bestRisk.Set(f.Best)
		s.bestVersion.Set(float64(f.BestAt))
		s.withoutImprovement.Set(float64(f.Without))
	}
}
