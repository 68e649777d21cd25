package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
)

// rollouts has the metrics of the models that agents are told to predict with.
type rollouts struct {
	results             *prometheus.CounterVec // by result
	released, candidate measure
	agents              measure
	ratio               measure
}

func newRollouts(r registrar) rollouts {
	return rollouts{
		results: r.counterBy("rollouts_total", "Rollouts of a model that ended, by result: first (there was none "+
			"before), widened (released to all agents), worse or no_reports (withdrawn).", "result",
			words(rollout.Results())),
		released: r.measure("rollout_released_version", "Version of the model that all agents may predict with."),
		candidate: r.measure("rollout_candidate_version",
			"Version of the model that a share of the agents predicts with; 0 if there is none."),
		agents: r.measure("rollout_agents", "Agents of that share that were there when it began."),
		ratio: r.measure("rollout_residuals_ratio",
			"Mean square of the residuals of the last candidate, as a multiple of the released model's, at the median "+
				"agent."),
	}
}

func (c *rollouts) began(f round.RolloutBegan) {
	c.released.set(float64(f.Released.Version))
	c.candidate.set(float64(f.Candidate.Version))
	if !f.Resumed {
		c.agents.set(float64(f.Agents))
	}
}

func (c *rollouts) ended(f round.RolloutEnded) {
	c.results.WithLabelValues(string(f.Result)).Inc()
	c.released.set(float64(f.Released.Version))
	c.candidate.set(0)
	if f.Result != rollout.First {
		c.ratio.set(f.Ratio)
	}
}
