package round

import (
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// rowLimitFactor bounds the samples of an agent with round.robust, in medians of all agents' samples: the coordinator
// cannot verify them.
const rowLimitFactor = 5

// agentWeightFunction returns K·p_k of an agent with n_k samples at a draw from the given agents: 1, or with p_k in
// proportion to n_k. With round.robust p_k is in proportion to min(n_k, 5·median(n)).
func (c *CoordinatorMachine) agentWeightFunction(agents []wire.AgentID) func(samples uint64) float64 {
	if c.cfg.AgentWeightRule != spec.WeightsSamples {
		return func(uint64) float64 { return 1 }
	}
	sorted := make([]uint64, len(agents))
	for i, id := range agents {
		sorted[i] = c.roster.memberByAgent[id].rowCount
	}
	slices.Sort(sorted)
	many, most := rowCountLimit(sorted), uint64(math.MaxUint64)
	if c.cfg.UsesRobustAggregation {
		most = many
	}
	total := 0.0
	for _, n := range sorted {
		total += float64(min(n, most))
	}
	c.reportLargeRowCounts(agents, many)
	return func(samples uint64) float64 { return AgentWeight(len(agents), float64(min(samples, most)), total) }
}

// AgentWeight is K·p_k of one of K agents, for p_k = share/total.
func AgentWeight(agents int, share, total float64) float64 { return float64(agents) * share / total }

// rowCountLimit returns five times the median; the lower one of two, since a half of the agents may lie.
func rowCountLimit(sorted []uint64) uint64 {
	const noOverflow = 1 << 59
	return rowLimitFactor * min(sorted[(len(sorted)-1)/2], noOverflow)
}

func (c *CoordinatorMachine) reportLargeRowCounts(agents []wire.AgentID, most uint64) {
	var capped []wire.AgentID
	for _, id := range agents {
		if c.roster.memberByAgent[id].rowCount > most {
			capped = append(capped, id)
		}
	}
	if !slices.Equal(capped, c.agentsWithCappedRows) {
		c.reportEvent(RowCountsTooLarge{Round: c.record.Round, Agents: capped, RowLimit: most,
			WeightsAreCapped: c.cfg.UsesRobustAggregation})
	}
	c.agentsWithCappedRows = capped
}

// updateRowCountMatchesHello holds what an update says against the agent's hellos: the one before the draw, and the
// newest, since an agent that restarts in the middle of the round trains with the rows that it then has. Its weight is
// that of the draw.
func (c *CoordinatorMachine) updateRowCountMatchesHello(p *participantProgress, samples uint64) bool {
	m := c.roster.memberByAgent[p.Agent]
	return p.RowCount == 0 || samples == p.RowCount || m != nil && samples == m.rowCount
}
