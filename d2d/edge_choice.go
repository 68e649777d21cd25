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

// maxNearRTT is the round-trip time below which differences are noise. Above it times count by their power of two, so
// that the same edges come out of each measurement.
const maxNearRTT = 4 * time.Millisecond

// candidateEdge is an edge that could be: both ends have measured it.
type candidateEdge struct {
	i, j             int // i < j, in id order
	rttClass         int // the class of its round-trip time
	locationDistance float64
	tieBreak         uint64 // decides among equals
}

// chooseNeighbors returns, in id order, the neighbours of this agent in the graph of the cell. All agents compute the
// whole of it, from what the beacons say, which they all hear: so both ends of an edge choose it. Each agent of its own
// choosing the nearest would not do, as few choices are mutual, and cliques come of those.
//
// Edges are taken from the nearest pair to the farthest, as long as both ends have room: first those that join two
// parts that are not joined yet (Kruskal, so the graph is connected if all have measured all and take two
// neighbours), then those that fill what room there is. Pairs count by the class of their round-trip time, then by
// their distance if all places are known, then by lot.
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

// componentRoot finds the part that an agent is in, with shorter ways for the next time.
func componentRoot(part []int, k int) int {
	for part[k] != k {
		part[k] = part[part[k]]
		k = part[k]
	}
	return k
}

// candidateEdges returns the pairs whose ends have each heard the other's present start and measured it, the nearest
// first.
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

// rttInBeacon returns the round-trip time that a row has for an agent; 0 if it is not known.
func rttInBeacon(row *wire.Beacon, id wire.AgentID, boot wire.Epoch) time.Duration {
	i, found := slices.BinarySearchFunc(row.PeerEchoes, id, compareEchoAgentID)
	if !found || row.PeerEchoes[i].BootEpoch != boot {
		return 0
	}
	return time.Duration(row.PeerEchoes[i].RTTMicros) * time.Microsecond
}

// edgeTieBreak is the same at all agents and has no order: edges by lot make a graph that mixes well, those by id would
// make cliques.
func edgeTieBreak(a, b wire.AgentID) uint64 {
	h := sha256.Sum256([]byte(a + "\x00" + b))
	return binary.LittleEndian.Uint64(h[:])
}
