package round

import (
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// rowLimitFactor bounds the number of rows that counts for an agent's weight: under round.robust, at most
// rowLimitFactor times the median number of rows of all agents counts. The limit exists because the coordinator cannot
// verify the numbers that agents report.
const rowLimitFactor = 5

// agentWeightFunction returns a function that maps an agent's number of rows n_k to the agent's weight K·p_k, where K
// is the number of agents and p_k is the agent's share of the average. The shares are either equal or proportional to
// n_k. With round.robust they are proportional to min(n_k, 5·median(n)), where median(n) is the median number of rows
// of all agents.
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

// AgentWeight returns the weight K·p_k of one agent, where K is the number of agents and p_k = share/total is the
// agent's share of the average.
func AgentWeight(agents int, share, total float64) float64 { return float64(agents) * share / total }

// rowCountLimit returns five times the median of the sorted row counts. For an even number of counts it uses the lower
// middle value, since up to half of the agents may report too many rows.
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

// updateRowCountMatchesHello reports whether the number of samples in an agent's update equals the number in one of two
// hello messages: the agent's last hello message before the draw, or the agent's newest hello. The newest hello message
// counts because an agent that restarts during a round trains with the rows that it has after the restart.
func (c *CoordinatorMachine) updateRowCountMatchesHello(p *participantProgress, samples uint64) bool {
	m := c.roster.memberByAgent[p.Agent]
	return p.RowCount == 0 || samples == p.RowCount || m != nil && samples == m.rowCount
}
