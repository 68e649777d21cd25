package round

import (
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// DrawnIndex is an index drawn from 0 … K−1. DrawCount exceeds 1 only if indices are drawn with replacement.
type DrawnIndex struct {
	Index     int
	DrawCount int
	Odds      float64 // K times the probability that one draw selects the index; 0 means 1 (uniform sampling)
}

// IndexSampler draws L of K indices at random. It reuses its buffers, so each result is valid only until the next draw.
// The zero value is ready to use.
type IndexSampler struct {
	drawnIndices   []int
	swappedIndices map[int]int // index at each position that the sparse shuffle has changed
	scratchIndices []int       // buffer with all indices, for a full shuffle
	countedIndices []DrawnIndex
	odds           []float64
	cumulativeOdds []float64 // cumulative sums of the odds, for draws by importance
}

// fullScanDivisor selects the shuffle algorithm: if at least K/16 of the K indices are drawn, it is faster to shuffle
// an array of all K indices than to store only the changed positions.
const fullScanDivisor = 16

// Draw draws l of k indices by the given sampling method. The parameter lengths contains the norms of the agents' last
// updates, which only importance sampling uses ([ImportanceOdds]).
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

// DrawWithoutReplacement draws min(l, k) of k indices uniformly without replacement, by the first l steps of a shuffle.
// The probability that an index is drawn is l/k (Vlaski and Sayed, chapter 5, equation (5.8)).
func (s *IndexSampler) DrawWithoutReplacement(k, l int, rng *rand.Rand) []DrawnIndex {
	l = min(l, k)
	s.drawnIndices = s.drawnIndices[:0]
	if l == k { // All indices are drawn, so no shuffle is needed.
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

// shuffleSparse draws the same indices as a shuffle of all k indices, but stores only the positions that have changed.
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

// DrawWithReplacement draws l of k indices uniformly with replacement (FedDec paper, Algorithm 1, line 9). The draw
// counts in the result sum to l.
func (s *IndexSampler) DrawWithReplacement(k, l int, rng *rand.Rand) []DrawnIndex {
	s.drawnIndices = s.drawnIndices[:0]
	for range l {
		s.drawnIndices = append(s.drawnIndices, rng.IntN(k))
	}
	return s.countDrawnIndices(k)
}

// countDrawnIndices returns the distinct drawn indices in ascending order, each with the number of its draws.
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
