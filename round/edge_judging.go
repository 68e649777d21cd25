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
	stillBelow          = 8
	minEdgeReports      = 5 // … of so many measurements at least
	firstEdgeEndRounds  = 8 // … for 8 rounds, and twice as long each time it happens again
	maxEdgeEndDoublings = 5 // doublings
)

// EndedEdge is an edge that is left out for a while. It stands in the record, as a liar may cause restarts.
type EndedEdge struct {
	A, B   wire.AgentID // A before B
	Reason wire.EdgeEndReason
	Times  int          // in a row
	Until  wire.RoundID // the last round that is opened without it
}

func compareByEnds(a, b EndedEdge) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) }

// edgeKey names an edge.
type edgeKey [2]wire.AgentID

func edgeKeyOf(a, b wire.AgentID) edgeKey { return edgeKey{min(a, b), max(a, b)} }

// edgeReportCollector is what the ends of a block's edges say of them. A report is about the reporter's own edges, so a
// liar can have no others left out.
type edgeReportCollector struct {
	block            wire.RoundID
	weights          map[edgeKey]float64
	reportByEdge     map[edgeKey]wire.EdgeMeasurement // by who says it, and of whom
	awaitedReporters map[wire.AgentID]bool            // ends of edges with a bound that have said nothing of them yet
}

// startCollectingEdgeReports begins to watch the edges of the record's block.
func (c *Coordinator) startCollectingEdgeReports() {
	c.mixing.reports = edgeReportCollector{c.rec.Block, map[edgeKey]float64{}, map[edgeKey]wire.EdgeMeasurement{},
		map[wire.AgentID]bool{}}
	for _, e := range c.rec.Edges {
		if e.Clip > 0 {
			c.mixing.reports.weights[edgeKeyOf(e.A, e.B)] = e.Weight
			c.mixing.reports.awaitedReporters[e.A], c.mixing.reports.awaitedReporters[e.B] = true, true
		}
	}
}

// handleEdgeReport takes what an agent has measured of its edges.
func (c *Coordinator) handleEdgeReport(a wire.AgentID, s *wire.EdgeMeasurements) {
	if s.BlockRound != c.mixing.reports.block {
		return
	}
	delete(c.mixing.reports.awaitedReporters, a)
	for _, e := range s.Edges {
		if _, is := c.mixing.reports.weights[edgeKeyOf(a, e.ID)]; is && e.AppliedFlows > 0 {
			c.mixing.reports.reportByEdge[edgeKey{a, e.ID}] = e
		}
	}
}

// awaitsEdgeReports reports whether a round that could close waits until all have told of their edges, for a tenth of
// its time, a tenth of a second at least and a second at most: the next block is to be made without the edges of a
// liar. A block without an end is not made anew each round, and its edges are judged in a later one.
func (c *Coordinator) awaitsEdgeReports(now time.Time) bool {
	awaited := !c.rec.Plan.Endless && slices.ContainsFunc(slices.Collect(maps.Keys(c.mixing.reports.awaitedReporters)),
		func(a wire.AgentID) bool { m := c.roster.members[a]; return m != nil && m.present })
	if !awaited {
		return false
	}
	if c.mixing.reportsDeadline.IsZero() {
		c.mixing.reportsDeadline = now.Add(min(max(now.Sub(c.announcement.roundAnnouncedAt)/10, time.Second/10),
			time.Second))
	}
	return now.Before(c.mixing.reportsDeadline)
}

// judgeEdges has edges left out of the blocks that come, and takes back those whose time is over.
func (c *Coordinator) judgeEdges() {
	for e, x := range c.mixing.endedEdgeByEnds {
		if x.Until+1 == c.rec.Round {
			c.mixing.edgesMustChange = c.mixing.edgesMustChange || c.rec.Plan.Endless
		} else if x.Until+firstEdgeEndRounds<<maxEdgeEndDoublings < c.rec.Round {
			delete(c.mixing.endedEdgeByEnds, e)
		}
	}
	w := &c.mixing.reports
	if len(w.reportByEdge) < minEdgeReports {
		return
	}
	verdicts := map[edgeKey]wire.EdgeEndReason{}
	usual := w.judgeFarEdges(verdicts)
	if len(verdicts) == 0 { // else flows that are bounded have driven the agents around
		w.judgeStillAgents(verdicts)
	}
	c.report(EdgesJudged{Round: w.block, MedianDistance: usual, Reports: len(w.reportByEdge),
		EndedEdges: len(verdicts)})
	for _, e := range slices.SortedFunc(maps.Keys(verdicts), func(a, b edgeKey) int {
		return slices.Compare(a[:], b[:])
	}) {
		x := c.mixing.endedEdgeByEnds[e]
		x.A, x.B, x.Reason = e[0], e[1], verdicts[e]
		x.Times++
		x.Until = c.rec.Round + firstEdgeEndRounds<<min(x.Times-1, maxEdgeEndDoublings) - 1
		c.mixing.endedEdgeByEnds[e] = x
		c.mixing.edgesMustChange = c.mixing.edgesMustChange || c.rec.Plan.Endless
		c.report(EdgeEnded{Round: w.block, Edge: x, MeanDistance: w.measuredDistance(e), MedianDistance: usual})
	}
	clear(w.reportByEdge)
}

// judgeFarEdges finds the edges whose ends were far apart, and returns the median distance.
func (w *edgeReportCollector) judgeFarEdges(verdicts map[edgeKey]wire.EdgeEndReason) (usual float64) {
	var all []float64
	for _, s := range w.reportByEdge {
		all = append(all, s.Distance)
	}
	usual = upperMedian(all)
	for e, s := range w.reportByEdge {
		if usual > 0 && s.Distance > farDistanceFactor*usual {
			verdicts[edgeKeyOf(e[0], e[1])] = wire.EndFar
		}
	}
	return usual
}

// judgeStillAgents finds the agents that do not move as their neighbours do, by the median of what these say. A
// gradient that is stronger than the pull moves an honest agent away, so the sign tells nothing; one at rest where both
// balance moves as little as one that lies, so nothing is found while others do not move either.
func (w *edgeReportCollector) judgeStillAgents(verdicts map[edgeKey]wire.EdgeEndReason) {
	var all []float64
	of := map[wire.AgentID][]float64{}
	for e, s := range w.reportByEdge {
		share := s.PullResponse / w.weights[edgeKeyOf(e[0], e[1])]
		all = append(all, share)
		of[e[1]] = append(of[e[1]], math.Abs(share))
	}
	if upperMedian(all) < 0.5 {
		return
	}
	for e := range w.weights {
		for _, a := range e {
			if shares := of[a]; len(shares) > 1 && upperMedian(shares) < 1./stillBelow && verdicts[e] == 0 {
				verdicts[e] = wire.EndStill
			}
		}
	}
}

// measuredDistance is what was measured between the ends of an edge: the larger, if both say it.
func (w *edgeReportCollector) measuredDistance(e edgeKey) float64 {
	return max(w.reportByEdge[e].Distance, w.reportByEdge[edgeKey{e[1], e[0]}].Distance)
}

// upperMedian is the median, of two middle ones the upper: of two neighbours that say the same both must.
func upperMedian(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// meshAgentsOf are what the edges of agents may follow from.
func (c *Coordinator) meshAgentsOf(agents []wire.AgentID) []MeshAgent {
	ends := c.roster.meshAgents(agents)
	for _, e := range c.endedEdgesFrom(c.rec.Round) {
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

// endedEdgesFrom returns, in the order of their ends, the edges that are left out up to round from, or longer.
func (c *Coordinator) endedEdgesFrom(from wire.RoundID) (list []EndedEdge) {
	for _, e := range c.mixing.endedEdgeByEnds {
		if e.Until >= from {
			list = append(list, e)
		}
	}
	sort.Slice(list, func(i, j int) bool { return compareByEnds(list[i], list[j]) < 0 })
	return list
}

// endedEdgesOf returns the edges of an agent that are left out of the present block, by neighbour.
func (c *Coordinator) endedEdgesOf(a wire.AgentID) (list []wire.EndedEdge) {
	if len(c.mixing.endedEdgeByEnds) == 0 {
		return nil
	}
	for _, e := range c.endedEdgesFrom(c.rec.Block) {
		switch a {
		case e.A:
			list = append(list, wire.EndedEdge{ID: e.B, Reason: e.Reason})
		case e.B:
			list = append(list, wire.EndedEdge{ID: e.A, Reason: e.Reason})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	return list[:min(len(list), wire.MaxNeighbors)]
}

// setEdgeClips sets τ of the edges whose two ends know clipped mixing, and has all edges proved if all their ends can.
func (c *Coordinator) setEdgeClips(edges []Edge, participants []Participant) {
	knows := func(a wire.AgentID) bool {
		i, found := slices.BinarySearchFunc(participants, a, compareToAgentID)
		return found && participants[i].Clips
	}
	proves := !slices.ContainsFunc(edges, func(e Edge) bool { return !knows(e.A) || !knows(e.B) })
	for k := range edges {
		edges[k].Proves = proves
		if c.cfg.MixingClip > 0 && knows(edges[k].A) && knows(edges[k].B) {
			edges[k].Clip = c.cfg.MixingClip
		}
	}
}

// clipHasChanged reports whether the configuration has another bound than the block's edges.
func (c *Coordinator) clipHasChanged() bool {
	return slices.ContainsFunc(c.rec.Edges, func(e Edge) bool { return e.Clip > 0 && e.Clip != c.cfg.MixingClip }) ||
		c.cfg.MixingClip > 0 && !slices.ContainsFunc(c.rec.Edges, func(e Edge) bool { return e.Clip > 0 })
}

var meshDistance = observe.OptionalGauge("mesh_distance",
	"Median of the mean distances ‖x_j − x_i‖ that agents have measured on their edges in the last block; "+
		"with task.mixing.clip only.")

// EdgesJudged: the distances that the two ends of each edge measured in a block were compared.
type EdgesJudged struct {
	Round          wire.RoundID // for which the edges were made
	Reports        int
	MedianDistance float64 // median of ‖x_j − x_i‖
	EndedEdges     int     // edges that are left out
}

// Describe implements observe.Event.
func (e EdgesJudged) Describe(d *observe.Description) { d.Set(meshDistance, e.MedianDistance) }

var endedEdges = observe.CounterByLabel("mesh_edges_ended_total",
	"Edges that are left out for some rounds, by reason.", "reason", observe.StringerNames(wire.EdgeEndReasons()))

// EdgeEnded: an edge is left out for some rounds.
type EdgeEnded struct {
	Round          wire.RoundID // for which the edge was made
	Edge           EndedEdge
	MeanDistance   float64 // mean of ‖x_j − x_i‖; 0 if neither end has reported it
	MedianDistance float64 // of all edges
}

// Describe implements observe.Event.
func (e EdgeEnded) Describe(d *observe.Description) {
	d.Inc(endedEdges, e.Edge.Reason.String())
	attributes := []any{"round", e.Round, "agent", e.Edge.A, "neighbour", e.Edge.B, "reason", e.Edge.Reason,
		"distance", observe.Rounded(e.MeanDistance), "usual", observe.Rounded(e.MedianDistance),
		"until_round", e.Edge.Until}
	if e.Edge.Reason == wire.EndStill {
		d.Log(observe.Warn, "edge left out: one end does not move as an agent that mixes", attributes...)
	} else {
		d.Log(observe.Warn, "edge left out: the parameters of its ends are too far apart", attributes...)
	}
}
