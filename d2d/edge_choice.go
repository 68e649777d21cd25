package d2d

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sort"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// maxNearRTT is the round-trip time below which all round-trip times are regarded as equal. Longer times are classified
// by powers of two, so that repeated measurements give the same edges.
const maxNearRTT = 4 * time.Millisecond

// candidateEdge is a possible edge between two agents that have measured the round-trip time to each other.
type candidateEdge struct {
	i, j             int // indices of the two agents in ascending order of id; i < j
	rttClass         int // class of the round-trip time: 0 below maxNearRTT, otherwise the power of two
	locationDistance float64
	tieBreak         uint64 // pseudo-random order of otherwise equal candidates
}

// chooseNeighbors returns this agent's neighbours in the graph of the cell (the agents that announce themselves to each
// other), in id order. All agents receive the same beacons and compute the same graph, so both ends of an edge choose
// the edge. If each agent chose only its nearest peers, cliques would form.
//
// Edges are chosen from the nearest pair of agents to the farthest, as long as both agents accept more neighbours. The
// first pass chooses edges that join two components (Kruskal's algorithm). The graph is therefore connected if all
// pairs are measured and each agent accepts two neighbours. The second pass adds further edges. Pairs are ordered by
// the class of their round-trip time, then by distance if all locations are known, then pseudo-randomly.
func (s *NeighborScout) chooseNeighbors(alive []wire.AgentID) []wire.AgentID {
	ids := append(slices.Clone(alive), s.cfg.OwnID)
	slices.Sort(ids)
	rows, boots := make([]*wire.Beacon, len(ids)), make([]wire.Epoch, len(ids))
	for k, id := range ids {
		if id == s.cfg.OwnID {
			rows[k], boots[k] = &s.lastOwnBeacon, s.cfg.Boot
		} else {
			rows[k], boots[k] = &s.otherAgentByID[id].lastBeacon, s.otherAgentByID[id].boot
		}
	}
	self, _ := slices.BinarySearch(ids, s.cfg.OwnID)
	pairs := candidateEdges(ids, boots, rows)
	room, part := make([]int, len(ids)), make([]int, len(ids))
	for k := range ids {
		room[k], part[k] = int(rows[k].MaxNeighbors), k
	}
	var chosen []wire.AgentID
	for _, joins := range []bool{true, false} {
		pairs = slices.DeleteFunc(pairs, func(p candidateEdge) bool {
			if room[p.i] == 0 || room[p.j] == 0 || joins && componentRoot(part, p.i) == componentRoot(part, p.j) {
				return false
			}
			part[componentRoot(part, p.i)] = componentRoot(part, p.j)
			room[p.i]--
			room[p.j]--
			switch self {
			case p.i:
				chosen = append(chosen, ids[p.j])
			case p.j:
				chosen = append(chosen, ids[p.i])
			}
			return true
		})
	}
	slices.Sort(chosen)
	return chosen
}

// componentRoot returns the root node of agent k's component in a union-find structure, with path compression.
func componentRoot(part []int, k int) int {
	for part[k] != k {
		part[k] = part[part[k]]
		k = part[k]
	}
	return k
}

// candidateEdges returns the pairs of agents that have measured the round-trip time to each other's running process,
// nearest pair first.
func candidateEdges(ids []wire.AgentID, boots []wire.Epoch, rows []*wire.Beacon) []candidateEdge {
	placed := !slices.ContainsFunc(rows, func(b *wire.Beacon) bool { return !b.Location.IsKnown })
	var pairs []candidateEdge
	for i := range ids {
		for j := i + 1; j < len(ids); j++ {
			there, back := rttInBeacon(rows[i], ids[j], boots[j]), rttInBeacon(rows[j], ids[i], boots[i])
			if there == 0 || back == 0 {
				continue
			}
			p := candidateEdge{i: i, j: j, rttClass: bits.Len64(uint64(max(there, back) / maxNearRTT)),
				tieBreak: edgeTieBreak(ids[i], ids[j])}
			if placed {
				a, b := rows[i].Location, rows[j].Location
				p.locationDistance = math.Hypot(a.X-b.X, a.Y-b.Y)
			}
			pairs = append(pairs, p)
		}
	}
	sort.Slice(pairs, func(i, j int) bool {
		p, q := &pairs[i], &pairs[j]
		return cmp.Or(cmp.Compare(p.rttClass, q.rttClass), cmp.Compare(p.locationDistance, q.locationDistance),
			cmp.Compare(p.tieBreak,
				q.tieBreak),
			cmp.Compare(p.i, q.i), cmp.Compare(p.j, q.j)) < 0
	})
	return pairs
}

// rttInBeacon returns the round-trip time that a beacon reports for the agent id. It returns 0 if the time is unknown.
func rttInBeacon(row *wire.Beacon, id wire.AgentID, boot wire.Epoch) time.Duration {
	i, found := slices.BinarySearchFunc(row.PeerEchoes, id, compareEchoAgentID)
	if !found || row.PeerEchoes[i].BootEpoch != boot {
		return 0
	}
	return time.Duration(row.PeerEchoes[i].RTTMicros) * time.Microsecond
}

// edgeTieBreak returns a pseudo-random number for a pair of agents, which is the same at all agents. Pseudo-random
// edges give a graph that mixes well, whereas an order by id would create cliques.
func edgeTieBreak(a, b wire.AgentID) uint64 {
	h := sha256.Sum256([]byte(a + "\x00" + b))
	return binary.LittleEndian.Uint64(h[:])
}
