package rule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/fedmesh/fedmesh/wire"
)

// BucketCount is the number of buckets into which a run's agents fall.
const BucketCount = 1 << bucketBits

const bucketBits = 6

// BucketOfAgent is the bucket of an agent: the low 6 bits of the first byte of SHA-256(seed as 8 bytes, little-endian |
// id). The seed is the round's, which is public and one for all rounds of a run.
func BucketOfAgent(seed uint64, id wire.AgentID) int {
	sum := sha256.Sum256(append(binary.LittleEndian.AppendUint64(nil, seed), id...))
	return int(sum[0]) & (BucketCount - 1)
}

// BucketedSum is s = Σ f_k v_k in float64. The agents of a bucket are added in the order in which they come; the
// buckets' sums are joined by the binary tree over all 64 buckets, in which a node with one child is that child. So
// whoever adds up whole buckets gets the same bits as who adds up all of them. It keeps at most 7 vectors.
type BucketedSum struct {
	dimension   int
	nodes       []bucketNode // complete subtrees and, last, the open bucket; from the left to the right
	freeVectors [][]float64  // vectors that are free
	openBucket  int          // the open one; −1 before the first
}

// bucketNode is the sum of the buckets index·2^level to (index+1)·2^level − 1.
type bucketNode struct {
	level, index int
	vector       []float64
}

// NewBucketedSum returns an empty sum of vectors of length d.
func NewBucketedSum(d int) *BucketedSum { return &BucketedSum{dimension: d, openBucket: -1} }

// AddToBucketedSum adds f·v for an agent of that bucket, each product rounded on its own. Buckets must not descend.
func AddToBucketedSum[T wire.Float](s *BucketedSum, bucket int, f float64, v []T) {
	acc := s.bucketVector(bucket)
	if len(v) != len(acc) {
		panic(fmt.Sprintf("rule: AddToBucketedSum of %d elements to a sum of %d", len(v), len(acc)))
	}
	addScaled(acc, f, v)
}

// WriteMeanAndReset overwrites dst with scale·s/n and empties the sum.
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

// bucketVector returns the sum of a bucket, which is the last one so far or comes after it.
func (s *BucketedSum) bucketVector(bucket int) []float64 {
	if bucket != s.openBucket {
		if bucket < s.openBucket || bucket >= BucketCount {
			panic(fmt.Sprintf("rule: bucket %d after %d", bucket, s.openBucket))
		}
		s.joinCompletedNodes(bucket)
		s.openBucket = bucket
		s.nodes = append(s.nodes, bucketNode{index: bucket, vector: s.takeZeroVector()})
	}
	return s.nodes[len(s.nodes)-1].vector
}

// joinCompletedNodes joins all that will not change when only buckets from next on are to come.
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

// addVectorTo adds v to dst. The lengths are equal.
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
