package metrics

import (
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/stop"
)

// stops has the metrics of how far a run has come to its end, and of what its next round waits for.
type stops struct {
	ended               gaugeSet // by reason
	risk, best, version measure
	without, bytes      measure
	waiting             gaugeSet // by what
	fresh               measure
}

func newStops(r registrar) stops {
	return stops{
		ended: r.gaugeBy("run_ended", "Why the run is finished: 1 for the reason, 0 for all others, and for all while "+
			"it goes on.", "reason", words(stop.Reasons())),
		risk: r.measure("run_risk", "The risk that round.stop judged last: on held-out data, else the mean of the "+
			"last 5 medians of what participants told."),
		best:    r.measure("run_best_risk", "The lowest of these risks that counted as an improvement."),
		version: r.measure("run_best_version", "Version of the model whose aggregation had it."),
		without: r.measure("run_aggregations_without_improvement",
			"Aggregations since then; round.stop.patience bounds them."),
		bytes: r.measure("run_bytes", "Bytes of the models that participants fetched and of the updates that were "+
			"accepted, since round.stop counts them."),
		waiting: r.gaugeBy("schedule_waiting", "What the next round waits for by round.schedule: 1 for a window, or "+
			"new rows of agents, 0 for the other, and for both while it does not wait.", "for",
			words(round.WaitReasons())),
		fresh: r.measure("agents_with_new_rows", "Agents with enough new rows for round.schedule.new_rows, when the "+
			"next round last waited for them."),
	}
}

func (s *stops) judged(f round.StopJudged) {
	s.bytes.set(float64(f.Bytes))
	if f.Judged > 0 {
		s.risk.set(f.Risk)
		s.best.set(f.Best)
		s.version.set(float64(f.BestAt))
		s.without.set(float64(f.Without))
	}
}
