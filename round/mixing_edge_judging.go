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

// An edge is left out …
const (
	// … whose ends were over 30 times as far apart as the median edge's, on average over a block.
	farDistanceFactor = 30
	// … or whose one end moved, to or fro, less than an eighth of what an agent that mixes does.
	stationaryShareDivisor = 8
	minEdgeReports         = 5 // … of so many measurements at least
	firstEdgeEndRounds     = 8 // … for 8 rounds, and twice as long each time it happens again
	maxEdgeEndDoublings    = 5 // doublings
)

// EndedEdge is an edge that is left out for a while. It stands in the record, as a liar may cause restarts.
type EndedEdge struct {
	A, B                 wire.AgentID // A before B
	Reason               wire.EdgeEndReason
	ConsecutiveEndCount  int          `json:"Times"` // in a row
	ExcludedThroughRound wire.RoundID `json:"Until"` // the last round that is opened without it
}

func compareEndedEdges(a, b EndedEdge) int {
	return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B))
}

// edgeKey names an edge.
type edgeKey [2]wire.AgentID

func edgeKeyOf(a, b wire.AgentID) edgeKey { return edgeKey{min(a, b), max(a, b)} }

// edgeReportCollector is what the ends of a block's edges say of them. A report is about the reporter's own edges, so a
// liar can have no others left out.
type edgeReportCollector struct {
	mixingBlockRound   wire.RoundID
	mixingWeightByEdge map[edgeKey]float64
	reportByEdge       map[edgeKey]wire.MixingEdgeMeasurement // by who says it, and of whom
	// ends of edges with a bound that have said nothing of them yet
	awaitedReporters map[wire.AgentID]bool
}

// startCollectingEdgeReports begins to watch the edges of the record's block.
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

// handleEdgeReport takes what an agent has measured of its edges.
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

// awaitsEdgeReports reports whether a round that could close waits until all have told of their edges, for a tenth of
// its time, a tenth of a second at least and a second at most: the next block is to be made without the edges of a
// liar. A block without an end is not made anew each round, and its edges are judged in a later one.
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

// judgeEdges has edges left out of the blocks that come, and takes back those whose time is over.
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
	if len(verdicts) == 0 { // else flows that are bounded have driven the agents around
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

// judgeEdgeDistances finds the edges whose ends were far apart, and returns the median distance.
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

// judgeStationaryAgents finds the agents that do not move as their neighbours do, by the median of what these say. A
// gradient that is stronger than the pull moves an honest agent away, so the sign tells nothing; one at rest where both
// balance moves as little as one that lies, so nothing is found while others do not move either.
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

// measuredEdgeDistance is what was measured between the ends of an edge: the larger, if both say it.
func (w *edgeReportCollector) measuredEdgeDistance(e edgeKey) float64 {
	return max(w.reportByEdge[e].MeanParameterDistance, w.reportByEdge[edgeKey{e[1], e[0]}].MeanParameterDistance)
}

// upperMedian is the median, of two middle ones the upper: of two neighbours that say the same both must.
func upperMedian(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// mixingAgentsOf are what the edges of agents may follow from.
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

// endedEdgesFromRound returns, in the order of their ends, the edges that are left out up to round from, or longer.
func (c *CoordinatorMachine) endedEdgesFromRound(from wire.RoundID) (list []EndedEdge) {
	for _, e := range c.mixing.endedEdgeByEnds {
		if e.ExcludedThroughRound >= from {
			list = append(list, e)
		}
	}
	sort.Slice(list, func(i, j int) bool { return compareEndedEdges(list[i], list[j]) < 0 })
	return list
}

// endedEdgesOfAgent returns the edges of an agent that are left out of the present block, by neighbour.
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

// setEdgeClipBounds sets τ of the edges whose two ends know clipped mixing, and has all edges proved if all their ends
// can.
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

// clipBoundHasChanged reports whether the configuration has another bound than the block's edges.
func (c *CoordinatorMachine) clipBoundHasChanged() bool {
	return slices.ContainsFunc(c.record.Edges,
		func(e MixingEdge) bool { return e.ClipBound > 0 && e.ClipBound != c.cfg.MixingClipBound }) ||
		c.cfg.MixingClipBound > 0 && !slices.ContainsFunc(c.record.Edges,
			func(e MixingEdge) bool { return e.ClipBound > 0 })
}

var mixingDistanceMetric = observe.OptionalGauge("mesh_distance",
	"Median over the edges of the mean distance ‖x_j − x_i‖ in the last block. Only with task.mixing.clip.")

// EdgesJudged: the distances that the two ends of each edge measured in a block were compared.
type EdgesJudged struct {
	MixingBlockRound wire.RoundID // for which the edges were made
	ReportCount      int
	MedianDistance   float64 // median of ‖x_j − x_i‖
	EndedEdges       int     // edges that are left out
}

// Describe implements observe.Event.
func (e EdgesJudged) Describe(d *observe.EventDescription) {
	d.SetGauge(mixingDistanceMetric, e.MedianDistance)
}

var endedEdgesMetric = observe.CounterByLabel("mesh_edges_ended_total",
	"Edges suspended for some rounds, by reason.", "reason", observe.StringerNames(wire.EdgeEndReasons()))

// EdgeEnded: an edge is left out for some rounds.
type EdgeEnded struct {
	MixingBlockRound wire.RoundID // for which the edge was made
	Edge             EndedEdge
	MeanDistance     float64 // mean of ‖x_j − x_i‖; 0 if neither end has reported it
	MedianDistance   float64 // of all edges
}

// Describe implements observe.Event.
func (e EdgeEnded) Describe(d *observe.EventDescription) {
	d.IncCounter(endedEdgesMetric, e.Edge.Reason.String())
	attributes := []any{"round", e.MixingBlockRound, "agent", e.Edge.A, "neighbour", e.Edge.B, "reason", e.Edge.Reason,
		"distance", observe.RoundToFourDigits(e.MeanDistance), "usual", observe.RoundToFourDigits(e.MedianDistance),
		"until_round", e.Edge.ExcludedThroughRound}
	if e.Edge.Reason == wire.EdgeEndNotMixing {
		d.Log(observe.Warn, "edge left out: one end does not move as an agent that mixes", attributes...)
	} else {
		d.Log(observe.Warn, "edge left out: the parameters of its ends are too far apart", attributes...)
	}
}
