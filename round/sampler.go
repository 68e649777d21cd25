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

// Sampler draws L of K places. It keeps its memory between draws, so that L of a million costs no more than sorting L.
// Its result is in order of the places, and valid until the next draw. Its zero value is ready.
type Sampler struct {
	drawn          []int
	swappedIndices map[int]int // of a draw that touches few places: what a swap has put there
	pool           []int       // of one that touches many
	places         []DrawnIndex
	odds           []float64
	cumulativeOdds []float64 // of the odds
}

// scanFrom is the share of the K places, one in this many, from which a draw walks over all of them.
const scanFrom = 16

// Draw draws as the word says: by importance after the lengths of the k agents' last updates ([ImportanceOdds]), which
// nothing else needs.
func (s *Sampler) Draw(how spec.Sampling, k, l int, lengths []float64, rng *rand.Rand) []DrawnIndex {
	switch how {
	case spec.WithReplacement:
		return s.DrawWithReplacement(k, l, rng)
	case spec.Importance:
		s.odds = ImportanceOdds(s.odds, lengths)
		return s.DrawByImportance(s.odds, l, rng)
	default:
		return s.DrawWithoutReplacement(k, l, rng)
	}
}

// DrawWithoutReplacement draws min(l, k) of k places uniformly without replacement, Pr{k ∈ L_i} = L/K (ch5 (5.8)): the
// first l steps of a shuffle.
func (s *Sampler) DrawWithoutReplacement(k, l int, rng *rand.Rand) []DrawnIndex {
	l = min(l, k)
	s.drawn = s.drawn[:0]
	if l == k { // all of them, whatever their order
		s.places = s.places[:0]
		for i := range k {
			s.places = append(s.places, DrawnIndex{Index: i, DrawCount: 1})
		}
		return s.places
	}
	if k > scanFrom*l {
		s.shuffleSparse(k, l, rng)
		return s.countDrawn(k)
	}
	s.pool = resize(s.pool, k)
	for i := range s.pool {
		s.pool[i] = i
	}
	for i := range l {
		j := i + rng.IntN(k-i)
		s.pool[i], s.pool[j] = s.pool[j], s.pool[i]
	}
	s.drawn = append(s.drawn, s.pool[:l]...)
	return s.countDrawn(k)
}

// shuffleSparse is the same shuffle on a pool that writes down only what has moved.
func (s *Sampler) shuffleSparse(k, l int, rng *rand.Rand) {
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
		s.drawn = append(s.drawn, at(j))
		s.swappedIndices[j] = at(i)
	}
}

// DrawWithReplacement draws l of k places uniformly with replacement (feddec Alg. 1 line 9); the Times add up to l.
func (s *Sampler) DrawWithReplacement(k, l int, rng *rand.Rand) []DrawnIndex {
	s.drawn = s.drawn[:0]
	for range l {
		s.drawn = append(s.drawn, rng.IntN(k))
	}
	return s.countDrawn(k)
}

// countDrawn counts what was drawn, in order.
func (s *Sampler) countDrawn(k int) []DrawnIndex {
	s.places = s.places[:0]
	if k > scanFrom*len(s.drawn) {
		slices.Sort(s.drawn)
		for _, i := range s.drawn {
			if n := len(s.places); n > 0 && s.places[n-1].Index == i {
				s.places[n-1].DrawCount++
			} else {
				s.places = append(s.places, DrawnIndex{Index: i, DrawCount: 1})
			}
		}
		return s.places
	}
	s.pool = resize(s.pool, k)
	clear(s.pool)
	for _, i := range s.drawn {
		s.pool[i]++
	}
	for i, n := range s.pool {
		if n > 0 {
			s.places = append(s.places, DrawnIndex{Index: i, DrawCount: n})
		}
	}
	return s.places
}

func resize(v []int, n int) []int {
	if cap(v) < n {
		return make([]int, n)
	}
	return v[:n]
}
