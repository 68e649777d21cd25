package rule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/fedmesh/fedmesh/wire"
)

// BucketCount is the number of buckets to which the agents of a run are assigned.
const BucketCount = 1 << bucketBits

const bucketBits = 6

// BucketOfAgent returns the bucket number of an agent: the low 6 bits of the first byte of SHA-256(seed | id), where
// seed is encoded as 8 bytes in little-endian order. The seed is public and the same for all rounds of a run.
func BucketOfAgent(seed uint64, id wire.AgentID) int {
	sum := sha256.Sum256(append(binary.LittleEndian.AppendUint64(nil, seed), id...))
	return int(sum[0]) & (BucketCount - 1)
}

// BucketedSum computes the sum s = Σ f_k v_k of update vectors v_k with factors f_k, in float64. It adds the vectors of
// a bucket in the order of arrival. It combines the sums of the 64 buckets by a complete binary tree; a node with only
// one child has the child's value. Therefore several programs can each sum some of the buckets, and the combined result
// is bitwise identical. A BucketedSum keeps at most 7 vectors.
type BucketedSum struct {
	dimension   int
	nodes       []bucketNode // sums of complete subtrees from left to right; the open bucket is last
	freeVectors [][]float64  // unused vectors that later nodes can reuse
	openBucket  int          // index of the bucket to which vectors are being added; −1 before the first vector
}

// bucketNode is the sum of the buckets index·2^level to (index+1)·2^level − 1, a subtree of the binary tree of buckets.
type bucketNode struct {
	level, index int
	vector       []float64
}

// NewBucketedSum returns an empty sum of vectors of length d.
func NewBucketedSum(d int) *BucketedSum { return &BucketedSum{dimension: d, openBucket: -1} }

// AddToBucketedSum adds f·v to the sum for an agent of the given bucket. It rounds each product separately. Bucket
// numbers must not decrease from one call to the next.
func AddToBucketedSum[T wire.Float](s *BucketedSum, bucket int, f float64, v []T) {
	acc := s.bucketVector(bucket)
	if len(v) != len(acc) {
		panic(fmt.Sprintf("rule: AddToBucketedSum: vector has %d elements, but sum has %d", len(v), len(acc)))
	}
	addScaled(acc, f, v)
}

// WriteMeanAndReset writes scale·s/n to dst, where s is the bucketed sum, and then sets the sum to zero.
func (s *BucketedSum) WriteMeanAndReset(dst []float64, n, scale float64) {
	s.joinCompletedNodes(BucketCount)
	if len(s.nodes) == 0 {
		clear(dst)
		return
	}
	for i, x := range s.nodes[0].vector {
		dst[i] = float64(scale * float64(x/n))
	}
	s.freeVectors = append(s.freeVectors, s.nodes[0].vector)
	s.nodes, s.openBucket = s.nodes[:0], -1
}

// bucketVector returns the vector that holds the sum of a bucket. The bucket must not precede the open bucket.
func (s *BucketedSum) bucketVector(bucket int) []float64 {
	if bucket != s.openBucket {
		if bucket < s.openBucket || bucket >= BucketCount {
			panic(fmt.Sprintf("rule: bucket %d is too large or precedes the open bucket %d", bucket, s.openBucket))
		}
		s.joinCompletedNodes(bucket)
		s.openBucket = bucket
		s.nodes = append(s.nodes, bucketNode{index: bucket, vector: s.takeZeroVector()})
	}
	return s.nodes[len(s.nodes)-1].vector
}

// joinCompletedNodes joins the tree nodes to which no more vectors will be added, if all further vectors belong to
// buckets with a number of at least next.
func (s *BucketedSum) joinCompletedNodes(next int) {
	for len(s.nodes) > 0 {
		last := len(s.nodes) - 1
		top := &s.nodes[last]
		if top.level == bucketBits || (top.index>>1+1)<<(top.level+1) > next {
			return
		}
		if last > 0 && s.nodes[last-1].level == top.level && s.nodes[last-1].index == top.index-1 && top.index&1 == 1 {
			left := &s.nodes[last-1]
			addVectorTo(left.vector, top.vector)
			s.freeVectors = append(s.freeVectors, top.vector)
			s.nodes, top = s.nodes[:last], left
		}
		top.level, top.index = top.level+1, top.index>>1
	}
}

// addVectorTo adds v to dst. The lengths must be equal.
func addVectorTo(dst, v []float64) {
	for len(v) >= 4 && len(dst) >= 4 {
		d, x := (*[4]float64)(dst), (*[4]float64)(v)
		d[0], d[1], d[2], d[3] = d[0]+x[0], d[1]+x[1], d[2]+x[2], d[3]+x[3]
		dst, v = dst[4:], v[4:]
	}
	for i, x := range v {
		dst[i] += x
	}
}

func (s *BucketedSum) takeZeroVector() []float64 {
	if n := len(s.freeVectors); n > 0 {
		v := s.freeVectors[n-1]
		s.freeVectors = s.freeVectors[:n-1]
		clear(v)
		return v
	}
	return make([]float64, s.dimension)
}
