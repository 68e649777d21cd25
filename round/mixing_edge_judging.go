package round

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Criteria for excluding an edge between two agents from mixing, and the duration of the exclusion.
const (
	// farDistanceFactor is the multiple of the median distance above which the parameters of two neighbours are too far
	// apart. Distances are averages over a block, the local steps between two server rounds.
	farDistanceFactor = 30
	// stationaryShareDivisor determines when an agent counts as not mixing: when the agent moves by less than
	// 1/stationaryShareDivisor of the movement that its neighbours expect.
	stationaryShareDivisor = 8
	minEdgeReports         = 5 // minimum number of reports for judging edges
	firstEdgeEndRounds     = 8 // number of rounds of an edge's first exclusion; doubled with each repetition
	maxEdgeEndDoublings    = 5 // maximum number of times that the duration is doubled
)

// EndedEdge is an edge that is temporarily excluded from mixing. The journal contains it, because a malicious agent
// could otherwise end the exclusion by causing the coordinator to restart.
type EndedEdge struct {
	A, B                 wire.AgentID // ends of the edge, A before B in id order
	Reason               wire.EdgeEndReason
	ConsecutiveEndCount  int          `json:"Times"` // number of consecutive exclusions of the edge
	ExcludedThroughRound wire.RoundID `json:"Until"` // last round that is opened without the edge
}

func compareEndedEdges(a, b EndedEdge) int {
	return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B))
}

// edgeKey identifies an edge by the ids of its two agents.
type edgeKey [2]wire.AgentID

func edgeKeyOf(a, b wire.AgentID) edgeKey { return edgeKey{min(a, b), max(a, b)} }

// edgeReportCollector collects the measurements that agents report about the edges of a block. It ignores an agent's
// reports about edges between other agents, so a malicious agent cannot exclude those edges.
type edgeReportCollector struct {
	mixingBlockRound   wire.RoundID
	mixingWeightByEdge map[edgeKey]float64
	// latest report of an edge, by reporting agent and neighbour
	reportByEdge map[edgeKey]wire.MixingEdgeMeasurement
	// agents that have an edge with a clipping bound and have not reported yet
	awaitedReporters map[wire.AgentID]bool
}

// startCollectingEdgeReports resets the collector for the edges of the record's block.
func (c *CoordinatorMachine) startCollectingEdgeReports() {
	c.mixing.edgeReports = edgeReportCollector{c.record.MixingBlockRound, map[edgeKey]float64{},
		map[edgeKey]wire.MixingEdgeMeasurement{},
		map[wire.AgentID]bool{}}
	for _, e := range c.record.Edges {
		if e.ClipBound > 0 {
			c.mixing.edgeReports.mixingWeightByEdge[edgeKeyOf(e.A, e.B)] = e.MixingWeight
			c.mixing.edgeReports.awaitedReporters[e.A], c.mixing.edgeReports.awaitedReporters[e.B] = true, true
		}
	}
}

// handleEdgeReport stores an agent's measurements of its edges.
func (c *CoordinatorMachine) handleEdgeReport(a wire.AgentID, s *wire.MixingEdgeMeasurements) {
	if s.MixingBlockRound != c.mixing.edgeReports.mixingBlockRound {
		return
	}
	delete(c.mixing.edgeReports.awaitedReporters, a)
	for _, e := range s.Edges {
		if _, is := c.mixing.edgeReports.mixingWeightByEdge[edgeKeyOf(a, e.NeighborID)]; is && e.AppliedFlows > 0 {
			c.mixing.edgeReports.reportByEdge[edgeKey{a, e.NeighborID}] = e
		}
	}
}

// awaitsEdgeReports reports whether a round that could close still waits for edge reports, so that bad edges can be
// excluded from the next block. The round waits for a tenth of its duration, between 0.1 and 1 second. A round of an
// endless block does not wait: the block's edges are judged in a later round.
func (c *CoordinatorMachine) awaitsEdgeReports(now time.Time) bool {
	awaited := !c.record.Plan.HasEndlessBlocks &&
		slices.ContainsFunc(slices.Collect(maps.Keys(c.mixing.edgeReports.awaitedReporters)),
			func(a wire.AgentID) bool { m := c.roster.memberByAgent[a]; return m != nil && m.isPresent })
	if !awaited {
		return false
	}
	if c.mixing.edgeReportsDeadline.IsZero() {
		c.mixing.edgeReportsDeadline = now.Add(min(max(now.Sub(c.announcement.roundAnnouncedAt)/10, time.Second/10),
			time.Second))
	}
	return now.Before(c.mixing.edgeReportsDeadline)
}

// judgeEdges excludes bad edges from later blocks, and readmits edges whose exclusion has ended.
func (c *CoordinatorMachine) judgeEdges() {
	for e, x := range c.mixing.endedEdgeByEnds {
		if x.ExcludedThroughRound+1 == c.record.Round {
			c.mixing.edgesMustChange = c.mixing.edgesMustChange || c.record.Plan.HasEndlessBlocks
		} else if x.ExcludedThroughRound+firstEdgeEndRounds<<maxEdgeEndDoublings < c.record.Round {
			delete(c.mixing.endedEdgeByEnds, e)
		}
	}
	w := &c.mixing.edgeReports
	if len(w.reportByEdge) < minEdgeReports {
		return
	}
	verdicts := map[edgeKey]wire.EdgeEndReason{}
	usual := w.judgeEdgeDistances(verdicts)
	// Search for agents that do not move only if no edge is too distant, because distant edges distort the movement of
	// agents.
	if len(verdicts) == 0 {
		w.judgeStationaryAgents(verdicts)
	}
	c.reportEvent(EdgesJudged{MixingBlockRound: w.mixingBlockRound, MedianDistance: usual,
		ReportCount: len(w.reportByEdge),
		EndedEdges:  len(verdicts)})
	for _, e := range slices.SortedFunc(maps.Keys(verdicts), func(a, b edgeKey) int {
		return slices.Compare(a[:], b[:])
	}) {
		x := c.mixing.endedEdgeByEnds[e]
		x.A, x.B, x.Reason = e[0], e[1], verdicts[e]
		x.ConsecutiveEndCount++
		x.ExcludedThroughRound = c.record.Round + firstEdgeEndRounds<<min(x.ConsecutiveEndCount-1,
			maxEdgeEndDoublings) - 1
		c.mixing.endedEdgeByEnds[e] = x
		c.mixing.edgesMustChange = c.mixing.edgesMustChange || c.record.Plan.HasEndlessBlocks
		c.reportEvent(EdgeEnded{MixingBlockRound: w.mixingBlockRound, Edge: x, MeanDistance: w.measuredEdgeDistance(e),
			MedianDistance: usual})
	}
	clear(w.reportByEdge)
}

// judgeEdgeDistances adds a verdict for each edge whose ends are too far apart, and returns the median distance of all
// edges.
func (w *edgeReportCollector) judgeEdgeDistances(verdicts map[edgeKey]wire.EdgeEndReason) (usual float64) {
	var all []float64
	for _, s := range w.reportByEdge {
		all = append(all, s.MeanParameterDistance)
	}
	usual = upperMedian(all)
	for e, s := range w.reportByEdge {
		if usual > 0 && s.MeanParameterDistance > farDistanceFactor*usual {
			verdicts[edgeKeyOf(e[0], e[1])] = wire.EdgeEndTooDistant
		}
	}
	return usual
}

// judgeStationaryAgents marks the edges of agents that do not respond to mixing, according to the median of their
// neighbours' reports. It ignores the sign of a response, since a strong gradient can move an honest agent away from
// its neighbours. It marks no agent if most agents move little, as happens when gradient and mixing balance.
func (w *edgeReportCollector) judgeStationaryAgents(verdicts map[edgeKey]wire.EdgeEndReason) {
	var all []float64
	of := map[wire.AgentID][]float64{}
	for e, s := range w.reportByEdge {
		share := s.MixingResponseRatio / w.mixingWeightByEdge[edgeKeyOf(e[0], e[1])]
		all = append(all, share)
		of[e[1]] = append(of[e[1]], math.Abs(share))
	}
	if upperMedian(all) < 0.5 {
		return
	}
	for e := range w.mixingWeightByEdge {
		for _, a := range e {
			if shares := of[a]; len(shares) > 1 && upperMedian(shares) < 1./stationaryShareDivisor && verdicts[e] == 0 {
				verdicts[e] = wire.EdgeEndNotMixing
			}
		}
	}
}

// measuredEdgeDistance returns the distance between the parameters of the edge's two agents. If both agents have
// reported a distance, it returns the larger one.
func (w *edgeReportCollector) measuredEdgeDistance(e edgeKey) float64 {
	return max(w.reportByEdge[e].MeanParameterDistance, w.reportByEdge[edgeKey{e[1], e[0]}].MeanParameterDistance)
}

// upperMedian returns the median, or the upper middle value for an even number of values. With two neighbours, a small
// result therefore requires that both neighbours report small values.
func upperMedian(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// mixingAgentsOf returns the inputs of the edge computation for the agents, with the excluded edges.
func (c *CoordinatorMachine) mixingAgentsOf(agents []wire.AgentID) []MixingAgent {
	ends := c.roster.mixingAgents(agents)
	for _, e := range c.endedEdgesFromRound(c.record.Round) {
		for k := range ends {
			switch ends[k].ID {
			case e.A:
				ends[k].AvoidedAgents = append(ends[k].AvoidedAgents, e.B)
			case e.B:
				ends[k].AvoidedAgents = append(ends[k].AvoidedAgents, e.A)
			}
		}
	}
	return ends
}

// endedEdgesFromRound returns the edges that are excluded at least through round from, sorted by their ends.
func (c *CoordinatorMachine) endedEdgesFromRound(from wire.RoundID) (list []EndedEdge) {
	for _, e := range c.mixing.endedEdgeByEnds {
		if e.ExcludedThroughRound >= from {
			list = append(list, e)
		}
	}
	sort.Slice(list, func(i, j int) bool { return compareEndedEdges(list[i], list[j]) < 0 })
	return list
}

// endedEdgesOfAgent returns an agent's edges that are excluded from the current block, sorted by neighbour.
func (c *CoordinatorMachine) endedEdgesOfAgent(a wire.AgentID) (list []wire.EndedEdge) {
	if len(c.mixing.endedEdgeByEnds) == 0 {
		return nil
	}
	for _, e := range c.endedEdgesFromRound(c.record.MixingBlockRound) {
		switch a {
		case e.A:
			list = append(list, wire.EndedEdge{NeighborID: e.B, Reason: e.Reason})
		case e.B:
			list = append(list, wire.EndedEdge{NeighborID: e.A, Reason: e.Reason})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].NeighborID < list[j].NeighborID })
	return list[:min(len(list), wire.MaxNeighbors)]
}

// setEdgeClipBounds sets the clipping bound τ (the maximum norm of the mixed parameter difference) of each edge whose
// two agents support clipped mixing. It requires proofs of parameters if all agents with edges support proofs.
func (c *CoordinatorMachine) setEdgeClipBounds(edges []MixingEdge, participants []Participant) {
	knows := func(a wire.AgentID) bool {
		i, found := slices.BinarySearchFunc(participants, a, compareParticipantToID)
		return found && participants[i].SupportsClipping
	}
	proves := !slices.ContainsFunc(edges, func(e MixingEdge) bool { return !knows(e.A) || !knows(e.B) })
	for k := range edges {
		edges[k].RequiresProofs = proves
		if c.cfg.MixingClipBound > 0 && knows(edges[k].A) && knows(edges[k].B) {
			edges[k].ClipBound = c.cfg.MixingClipBound
		}
	}
}

// clipBoundHasChanged reports whether the configured clipping bound differs from the clipping bound of the current
// block's edges.
func (c *CoordinatorMachine) clipBoundHasChanged() bool {
	return slices.ContainsFunc(c.record.Edges,
		func(e MixingEdge) bool { return e.ClipBound > 0 && e.ClipBound != c.cfg.MixingClipBound }) ||
		c.cfg.MixingClipBound > 0 && !slices.ContainsFunc(c.record.Edges,
			func(e MixingEdge) bool { return e.ClipBound > 0 })
}

var mixingDistanceMetric = observe.OptionalGauge("mesh_distance",
	"Median, over the pairs of neighbours, of the mean distance ‖x_j − x_i‖ between their parameters in the last "+
		"block of local steps. Only with task.mixing.clip.")

// EdgesJudged is emitted when the coordinator has compared the reported distances of a block's edges.
type EdgesJudged struct {
	MixingBlockRound wire.RoundID // round for which the edges were computed
	ReportCount      int
	MedianDistance   float64 // median distance ‖x_j − x_i‖ between the parameters x_i and x_j of two neighbours
	EndedEdges       int     // number of edges that were excluded
}

// Describe implements observe.Event.
func (e EdgesJudged) Describe(d *observe.EventDescription) {
	d.SetGauge(mixingDistanceMetric, e.MedianDistance)
}

var endedEdgesMetric = observe.CounterByLabel("mesh_edges_ended_total",
	"Pairs of neighbours whose exchange of parameters was suspended for some rounds, by reason.", "reason",
	observe.StringerNames(wire.EdgeEndReasons()))

// EdgeEnded is emitted when an edge is excluded from mixing for some rounds.
type EdgeEnded struct {
	MixingBlockRound wire.RoundID // round for which the edge was computed
	Edge             EndedEdge
	// mean distance ‖x_j − x_i‖ between the parameters of the edge's two agents; 0 if neither agent has reported it
	MeanDistance   float64
	MedianDistance float64 // median of the distances of all edges
}

// Describe implements observe.Event.
func (e EdgeEnded) Describe(d *observe.EventDescription) {
	d.IncCounter(endedEdgesMetric, e.Edge.Reason.String())
	attributes := []any{"round", e.MixingBlockRound, "agent", e.Edge.A, "neighbour", e.Edge.B, "reason", e.Edge.Reason,
		"distance", observe.RoundToFourDigits(e.MeanDistance), "median_distance",
		observe.RoundToFourDigits(e.MedianDistance),
		"until_round", e.Edge.ExcludedThroughRound}
	if e.Edge.Reason == wire.EdgeEndNotMixing {
		d.Log(observe.Warn, "parameter exchange between two neighbours suspended: one agent does not move its "+
			"parameters towards its neighbours'",
			attributes...)
	} else {
		d.Log(observe.Warn, "parameter exchange between two neighbours suspended: their parameters differ too much",
			attributes...)
	}
}
