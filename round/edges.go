package round

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// An edge is left out …
const (
	farFrom    = 30 // … whose ends were over 30 times as far apart as the median edge's, on average over a block
	stillBelow = 8  // … or whose one end moved, to or fro, less than an eighth of what an agent that mixes does
	fewestSeen = 5  // … of so many measurements at least
	endedFirst = 8  // … for 8 rounds, and twice as long each time it happens again
	endedMost  = 5  // doublings
)

// EndedEdge is an edge that is left out for a while. It stands in the record, as a liar may cause restarts.
type EndedEdge struct {
	A, B   wire.AgentID // A before B
	Reason wire.EndReason
	Times  int          // in a row
	Until  wire.RoundID // the last round that is opened without it
}

func byEnds(a, b EndedEdge) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) }

// between names an edge.
type between [2]wire.AgentID

func betweenOf(a, b wire.AgentID) between { return between{min(a, b), max(a, b)} }

// watched is what the ends of a block's edges say of them. A report is about the reporter's own edges, so a liar can
// have no others left out.
type watched struct {
	block   wire.RoundID
	weights map[between]float64
	seen    map[between]wire.Seen // by who says it, and of whom
	untold  map[wire.AgentID]bool // ends of edges with a bound that have said nothing of them yet
}

// watch begins to watch the edges of the record's block.
func (c *Coordinator) watch() {
	c.watched = watched{c.rec.Block, map[between]float64{}, map[between]wire.Seen{},
		map[wire.AgentID]bool{}}
	for _, e := range c.rec.Edges {
		if e.Clip > 0 {
			c.watched.weights[betweenOf(e.A, e.B)] = e.Weight
			c.watched.untold[e.A], c.watched.untold[e.B] = true, true
		}
	}
}

// edgesSeen takes what an agent has measured of its edges.
func (c *Coordinator) edgesSeen(a wire.AgentID, s *wire.SeenEdges) {
	if s.Block != c.watched.block {
		return
	}
	delete(c.watched.untold, a)
	for _, e := range s.Edges {
		if _, is := c.watched.weights[betweenOf(a, e.ID)]; is && e.Flows > 0 {
			c.watched.seen[between{a, e.ID}] = e
		}
	}
}

// awaitsReports reports whether a round that could close waits until all have told of their edges, for a tenth of its
// time, a tenth of a second at least and a second at most: the next block is to be made without the edges of a liar. A
// block without an end is not made anew each round, and its edges are judged in a later one.
func (c *Coordinator) awaitsReports(now time.Time) bool {
	awaited := !c.rec.Plan.Endless && slices.ContainsFunc(slices.Collect(maps.Keys(c.watched.untold)),
		func(a wire.AgentID) bool { m := c.roster.members[a]; return m != nil && m.present })
	if !awaited {
		return false
	}
	if c.reportsBy.IsZero() {
		c.reportsBy = now.Add(min(max(now.Sub(c.announced)/10, time.Second/10), time.Second))
	}
	return now.Before(c.reportsBy)
}

// judgeEdges has edges left out of the blocks that come, and takes back those whose time is over.
func (c *Coordinator) judgeEdges() {
	for e, x := range c.ended {
		if x.Until+1 == c.rec.Round {
			c.remesh = c.remesh || c.rec.Plan.Endless
		} else if x.Until+endedFirst<<endedMost < c.rec.Round {
			delete(c.ended, e)
		}
	}
	w := &c.watched
	if len(w.seen) < fewestSeen {
		return
	}
	verdicts := map[between]wire.EndReason{}
	usual := w.far(verdicts)
	if len(verdicts) == 0 { // else flows that are bounded have driven the agents around
		w.still(verdicts)
	}
	c.report(EdgesJudged{Round: w.block, Distance: usual, Reports: len(w.seen), Ended: len(verdicts)})
	for _, e := range slices.SortedFunc(maps.Keys(verdicts), func(a, b between) int {
		return slices.Compare(a[:], b[:])
	}) {
		x := c.ended[e]
		x.A, x.B, x.Reason = e[0], e[1], verdicts[e]
		x.Times++
		x.Until = c.rec.Round + endedFirst<<min(x.Times-1, endedMost) - 1
		c.ended[e] = x
		c.remesh = c.remesh || c.rec.Plan.Endless
		c.report(EdgeEnded{Round: w.block, Edge: x, Distance: w.distance(e), Usual: usual})
	}
	clear(w.seen)
}

// far finds the edges whose ends were far apart, and returns the median distance.
func (w *watched) far(verdicts map[between]wire.EndReason) (usual float64) {
	var all []float64
	for _, s := range w.seen {
		all = append(all, s.Distance)
	}
	usual = upper(all)
	for e, s := range w.seen {
		if usual > 0 && s.Distance > farFrom*usual {
			verdicts[betweenOf(e[0], e[1])] = wire.EndFar
		}
	}
	return usual
}

// still finds the agents that do not move as their neighbours do, by the median of what these say. A gradient that is
// stronger than the pull moves an honest agent away, so the sign tells nothing; one at rest where both balance moves as
// little as one that lies, so nothing is found while others do not move either.
func (w *watched) still(verdicts map[between]wire.EndReason) {
	var all []float64
	of := map[wire.AgentID][]float64{}
	for e, s := range w.seen {
		share := s.Yield / w.weights[betweenOf(e[0], e[1])]
		all = append(all, share)
		of[e[1]] = append(of[e[1]], math.Abs(share))
	}
	if upper(all) < 0.5 {
		return
	}
	for e := range w.weights {
		for _, a := range e {
			if shares := of[a]; len(shares) > 1 && upper(shares) < 1./stillBelow && verdicts[e] == 0 {
				verdicts[e] = wire.EndStill
			}
		}
	}
}

// distance is what was measured between the ends of an edge: the larger, if both say it.
func (w *watched) distance(e between) float64 {
	return max(w.seen[e].Distance, w.seen[between{e[1], e[0]}].Distance)
}

// upper is the median, of two middle ones the upper: of two neighbours that say the same both must.
func upper(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// endsOf are what the edges of agents may follow from.
func (c *Coordinator) endsOf(agents []wire.AgentID) []MeshAgent {
	ends := c.roster.ends(agents)
	for _, e := range c.endedList(c.rec.Round) {
		for k := range ends {
			switch ends[k].ID {
			case e.A:
				ends[k].Avoids = append(ends[k].Avoids, e.B)
			case e.B:
				ends[k].Avoids = append(ends[k].Avoids, e.A)
			}
		}
	}
	return ends
}

// endedList returns, in the order of their ends, the edges that are left out up to round from, or longer.
func (c *Coordinator) endedList(from wire.RoundID) (list []EndedEdge) {
	for _, e := range c.ended {
		if e.Until >= from {
			list = append(list, e)
		}
	}
	sort.Slice(list, func(i, j int) bool { return byEnds(list[i], list[j]) < 0 })
	return list
}

// endedOf returns the edges of an agent that are left out of the present block, by neighbour.
func (c *Coordinator) endedOf(a wire.AgentID) (list []wire.EndedEdge) {
	if len(c.ended) == 0 {
		return nil
	}
	for _, e := range c.endedList(c.rec.Block) {
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

// bound sets τ of the edges whose two ends know clipped mixing, and has all edges proved if all their ends can.
func (c *Coordinator) bound(edges []Edge, participants []Participant) {
	knows := func(a wire.AgentID) bool {
		i, found := slices.BinarySearchFunc(participants, a, byAgent)
		return found && participants[i].Clips
	}
	proves := !slices.ContainsFunc(edges, func(e Edge) bool { return !knows(e.A) || !knows(e.B) })
	for k := range edges {
		edges[k].Proves = proves
		if c.cfg.Clip > 0 && knows(edges[k].A) && knows(edges[k].B) {
			edges[k].Clip = c.cfg.Clip
		}
	}
}

// reboundEdges reports whether the configuration has another bound than the block's edges.
func (c *Coordinator) reboundEdges() bool {
	return slices.ContainsFunc(c.rec.Edges, func(e Edge) bool { return e.Clip > 0 && e.Clip != c.cfg.Clip }) ||
		c.cfg.Clip > 0 && !slices.ContainsFunc(c.rec.Edges, func(e Edge) bool { return e.Clip > 0 })
}
