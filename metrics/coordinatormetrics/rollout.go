package coordinatormetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
)

// rollouts has the metrics of the models that agents are told to predict with.
type rollouts struct {
	results             *prometheus.CounterVec // by result
	released, candidate metrics.OptionalGauge
	candidateAgents     metrics.OptionalGauge
	ratio               metrics.OptionalGauge
}

func newRollouts(r metrics.Registrar) rollouts {
	return rollouts{
		results: r.CounterByLabel("rollouts_total", "Rollouts of a model that ended, by result: first (there was none "+
			"before), widened (released to all agents), worse or no_reports (withdrawn).", "result",
			metrics.ToStrings(rollout.Results())),
		released: r.OptionalGauge("rollout_released_version", "Version of the model that all agents may predict with."),
		candidate: r.OptionalGauge("rollout_candidate_version",
			"Version of the model that a share of the agents predicts with; 0 if there is none."),
		candidateAgents: r.OptionalGauge("rollout_agents", "Agents of that share that were there when it began."),
		ratio: r.OptionalGauge("rollout_residuals_ratio",
			"Mean square of the residuals of the last candidate, as a multiple of the released model's, at the median "+
				"agent."),
	}
}

func (c *rollouts) began(f round.RolloutBegan) {
	c.released.Set(float64(f.Released.Version))
	c.candidate.Set(float64(f.Candidate.Version))
	if !f.Resumed {
		c.candidateAgents.Set(float64(f.TrialAgents))
	}
}

func (c *rollouts) ended(f round.RolloutEnded) {
	c.results.WithLabelValues(string(f.Result)).Inc()
	c.released.Set(float64(f.Released.Version))
	c.candidate.Set(0)
	if f.Result != rollout.First {
		c.ratio.Set(f.MedianErrorRatio)
	}
}
