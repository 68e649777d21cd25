package testkit

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/wire"
)

// WeightedUpdate is the update vector of one agent with the agent's weight in the aggregate.
type WeightedUpdate[T wire.Float] struct {
	ID     wire.AgentID
	Factor float64
	Values []T
}

// ReferenceAggregate computes scale·Σ f_k·v_k
//
// n, where v_k is the update and f_k the weight of agent k. It is a slow, simple implementation of the summation order
// in docs/ALGORITHMS.md: by id within 64 buckets, then a binary tree over the buckets.
func ReferenceAggregate[T wire.Float](seed uint64, scale float64, n int, sent ...WeightedUpdate[T]) []float64 {
	var buckets [64][]float64
	slices.SortFunc(sent, func(a, b WeightedUpdate[T]) int { return strings.Compare(string(a.ID), string(b.ID)) })
	for _, s := range sent {
		digest := sha256.Sum256(append(binary.LittleEndian.AppendUint64(nil, seed), s.ID...))
		sum := &buckets[digest[0]%64]
		if *sum == nil {
			*sum = make([]float64, len(s.Values))
		}
		for i, x := range s.Values {
			(*sum)[i] += float64(s.Factor * float64(x))
		}
	}
	d := concatenateNodes(buckets[:])
	for i := range d {
		d[i] = float64(scale * float64(d[i]/float64(n)))
	}
	return d
}

func concatenateNodes(nodes [][]float64) []float64 {
	if len(nodes) == 1 {
		return nodes[0]
	}
	left, right := concatenateNodes(nodes[:len(nodes)/2]), concatenateNodes(nodes[len(nodes)/2:])
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	}
	both := make([]float64, len(left))
	for i := range both {
		both[i] = left[i] + right[i]
	}
	return both
}
