package round

import (
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// DrawnIndex is a place drawn from 0 … K−1, and how often: more than once only with replacement.
type DrawnIndex struct {
	Index     int
	DrawCount int
	Odds      float64 // K times its probability in each draw, where agents are drawn by importance; else 0, for 1
}

// IndexSampler draws L of K places. It keeps its memory between draws, so that L of a million costs no more than
// sorting L. Its result is in order of the places, and valid until the next draw. Its zero value is ready.
type IndexSampler struct {
	drawnIndices   []int
	swappedIndices map[int]int // of a draw that touches few places: what a swap has put there
	scratchIndices []int       // of one that touches many
	countedIndices []DrawnIndex
	odds           []float64
	cumulativeOdds []float64 // of the odds
}

// fullScanDivisor is the share of the K places, one in this many, from which a draw walks over all of them.
const fullScanDivisor = 16

// Draw draws as the word says: by importance after the lengths of the k agents' last updates ([ImportanceOdds]), which
// nothing else needs.
func (s *IndexSampler) Draw(how spec.ParticipantSampling, k, l int, lengths []float64, rng *rand.Rand) []DrawnIndex {
	switch how {
	case spec.SamplingWithReplacement:
		return s.DrawWithReplacement(k, l, rng)
	case spec.SamplingImportance:
		s.odds = ImportanceOdds(s.odds, lengths)
		return s.DrawByImportance(s.odds, l, rng)
	default:
		return s.DrawWithoutReplacement(k, l, rng)
	}
}

// DrawWithoutReplacement draws min(l, k) of k places uniformly without replacement, Pr{k ∈ L_i} = L/K (ch5 (5.8)): the
// first l steps of a shuffle.
func (s *IndexSampler) DrawWithoutReplacement(k, l int, rng *rand.Rand) []DrawnIndex {
	l = min(l, k)
	s.drawnIndices = s.drawnIndices[:0]
	if l == k { // all of them, whatever their order
		s.countedIndices = s.countedIndices[:0]
		for i := range k {
			s.countedIndices = append(s.countedIndices, DrawnIndex{Index: i, DrawCount: 1})
		}
		return s.countedIndices
	}
	if k > fullScanDivisor*l {
		s.shuffleSparse(k, l, rng)
		return s.countDrawnIndices(k)
	}
	s.scratchIndices = resizeInts(s.scratchIndices, k)
	for i := range s.scratchIndices {
		s.scratchIndices[i] = i
	}
	for i := range l {
		j := i + rng.IntN(k-i)
		s.scratchIndices[i], s.scratchIndices[j] = s.scratchIndices[j], s.scratchIndices[i]
	}
	s.drawnIndices = append(s.drawnIndices, s.scratchIndices[:l]...)
	return s.countDrawnIndices(k)
}

// shuffleSparse is the same shuffle on a pool that writes down only what has moved.
func (s *IndexSampler) shuffleSparse(k, l int, rng *rand.Rand) {
	if s.swappedIndices == nil {
		s.swappedIndices = map[int]int{}
	}
	clear(s.swappedIndices)
	at := func(i int) int {
		if v, ok := s.swappedIndices[i]; ok {
			return v
		}
		return i
	}
	for i := range l {
		j := i + rng.IntN(k-i)
		s.drawnIndices = append(s.drawnIndices, at(j))
		s.swappedIndices[j] = at(i)
	}
}

// DrawWithReplacement draws l of k places uniformly with replacement (feddec Alg. 1 line 9); the Times add up to l.
func (s *IndexSampler) DrawWithReplacement(k, l int, rng *rand.Rand) []DrawnIndex {
	s.drawnIndices = s.drawnIndices[:0]
	for range l {
		s.drawnIndices = append(s.drawnIndices, rng.IntN(k))
	}
	return s.countDrawnIndices(k)
}

// countDrawnIndices counts what was drawn, in order.
func (s *IndexSampler) countDrawnIndices(k int) []DrawnIndex {
	s.countedIndices = s.countedIndices[:0]
	if k > fullScanDivisor*len(s.drawnIndices) {
		slices.Sort(s.drawnIndices)
		for _, i := range s.drawnIndices {
			if n := len(s.countedIndices); n > 0 && s.countedIndices[n-1].Index == i {
				s.countedIndices[n-1].DrawCount++
			} else {
				s.countedIndices = append(s.countedIndices, DrawnIndex{Index: i, DrawCount: 1})
			}
		}
		return s.countedIndices
	}
	s.scratchIndices = resizeInts(s.scratchIndices, k)
	clear(s.scratchIndices)
	for _, i := range s.drawnIndices {
		s.scratchIndices[i]++
	}
	for i, n := range s.scratchIndices {
		if n > 0 {
			s.countedIndices = append(s.countedIndices, DrawnIndex{Index: i, DrawCount: n})
		}
	}
	return s.countedIndices
}

func resizeInts(v []int, n int) []int {
	if cap(v) < n {
		return make([]int, n)
	}
	return v[:n]
}
