package d2d

import (
	"fmt"

	"github.com/fedmesh/fedmesh/wire"
)

// Adjacency contains the neighbours of each node, in ascending order, with the numbers of the connecting edges.
type Adjacency struct {
	// the entries of node i have the indices from entryOffsets[i] up to, but excluding, entryOffsets[i+1]
	entryOffsets []int32
	entries      []adjacencyEntry
	edgeCount    int
}

type adjacencyEntry struct{ node, edge int32 }

// NewAdjacency returns the adjacency lists of a graph of n nodes. The edges must be pairs (i, j) with i < j < n, in
// lexicographic order and without duplicates, as in graph.Graph. NewAdjacency panics if they are not.
func NewAdjacency(n int, edges [][2]int) *Adjacency {
	l := &Adjacency{entryOffsets: make([]int32, n+1), entries: make([]adjacencyEntry, 2*len(edges)),
		edgeCount: len(edges)}
	last := [2]int{-1, -1}
	for _, e := range edges {
		if e[0] < 0 || e[0] >= e[1] || e[1] >= n || e[0] < last[0] || e[0] == last[0] && e[1] <= last[1] {
			panic(fmt.Sprintf("d2d: NewAdjacency: edge %v in a graph of %d nodes is invalid or out of order after "+
				"%v", e, n, last))
		}
		last = e
		l.entryOffsets[e[0]+1]++
		l.entryOffsets[e[1]+1]++
	}
	for i := range n {
		l.entryOffsets[i+1] += l.entryOffsets[i]
	}
	// No sorting is needed: for each node i, the edges (h, i) with h < i precede the edges (i, j), and both groups are
	// in ascending order.
	next := append([]int32(nil), l.entryOffsets...)
	for k, e := range edges {
		i, j := int32(e[0]), int32(e[1])
		l.entries[next[i]], l.entries[next[j]] = adjacencyEntry{j, int32(k)}, adjacencyEntry{i, int32(k)}
		next[i]++
		next[j]++
	}
	return l
}

// NodeCount returns the number of nodes.
func (l *Adjacency) NodeCount() int { return len(l.entryOffsets) - 1 }

// MixAllNodes performs one mixing step of all nodes. It computes dst[i] = x[i] + Σ_j w_ij (sent[j] − sent[i]) over the
// neighbours j of node i in ascending order, where w_ij is the weight of the edge between i and j. The result is
// bitwise equal to copying x[i] and calling [AddParameterFlow] for each neighbour.
//
// sent contains the vectors that receivers decode, which differ from x only after a lossy codec. weights has one weight
// per edge, which is rounded to T before use. Edges of weight 0 are skipped. dst, x and sent have n rows of the same
// length. dst must not share memory with x or sent.
//
// MixAllNodes panics if the shapes differ.
func MixAllNodes[T wire.Float](dst, x, sent [][]T, links *Adjacency, weights []float64) {
	n := links.NodeCount()
	if len(dst) != n || len(x) != n || len(sent) != n || len(weights) != links.edgeCount {
		panic(fmt.Sprintf("d2d: MixAllNodes: %d input rows, %d output rows and %d weights do not match a graph of %d "+
			"nodes and %d edges",
			len(x), len(dst), len(weights), n, links.edgeCount))
	}
	for i := range dst {
		MixNode(dst[i], i, x, sent, links, weights)
	}
}

// MixNode computes row i of the result of [MixAllNodes], the new parameters of node i. Different rows may be computed
// concurrently.
func MixNode[T wire.Float](dst []T, i int, x, sent [][]T, links *Adjacency, weights []float64) {
	if len(dst) != len(x[i]) || len(dst) != len(x[0]) {
		panic(fmt.Sprintf("d2d: MixNode: lengths differ: row %d has %d elements, the output has %d, row 0 has %d",
			i, len(x[i]), len(dst),
			len(x[0])))
	}
	copy(dst, x[i])
	addNodeFlows(dst, i, sent, links.entries[links.entryOffsets[i]:links.entryOffsets[i+1]], weights)
}

// addNodeFlows adds the flows from all neighbours of node i to dst. It processes up to four flows per pass over dst,
// because a pass over dst costs as much as a flow. The flows are added in the order of the neighbours.
func addNodeFlows[T wire.Float](dst []T, i int, x [][]T, to []adjacencyEntry, weights []float64) {
	var w [4]T
	var row [4][]T
	full := 0
	for _, l := range to {
		if w[full] = T(weights[l.edge]); w[full] == 0 {
			continue
		}
		row[full] = x[l.node]
		if full++; full == 4 {
			addFourParameterFlows(dst, x[i], w, row[0], row[1], row[2], row[3])
			full = 0
		}
	}
	switch full {
	case 3:
		addTwoParameterFlows(dst, x[i], w[0], w[1], row[0], row[1])
		AddParameterFlow(dst, w[2], x[i], row[2])
	case 2:
		addTwoParameterFlows(dst, x[i], w[0], w[1], row[0], row[1])
	case 1:
		AddParameterFlow(dst, w[0], x[i], row[0])
	}
}
