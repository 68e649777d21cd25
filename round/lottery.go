package round

import (
	"math/rand/v2"
	"slices"
)

// Place is a place drawn from 0 … K−1, and how often: more than once only with replacement.
type Place struct {
	Index int
	Times int
}

// Lottery draws L of K places. It keeps its memory between draws, so that L of a million costs no more than sorting L.
// What it returns is in order of the places, and valid until its next draw. Its zero value is ready.
type Lottery struct {
	drawn  []int
	moved  map[int]int // of a draw that touches few places: what a swap has put there
	pool   []int       // of one that touches many
	places []Place
}

// scanFrom is the share of the K places, one in so many, from which a draw walks over all of them.
const scanFrom = 16

// WithoutReplacement draws min(l, k) of k places uniformly without replacement, Pr{k ∈ L_i} = L/K (ch5 (5.8)): the
// first l steps of a shuffle.
func (y *Lottery) WithoutReplacement(k, l int, rng *rand.Rand) []Place {
	l = min(l, k)
	y.drawn = y.drawn[:0]
	if l == k { // all of them, whatever their order
		y.places = y.places[:0]
		for i := range k {
			y.places = append(y.places, Place{i, 1})
		}
		return y.places
	}
	if k > scanFrom*l {
		y.shuffleSparse(k, l, rng)
		return y.sorted(k)
	}
	y.pool = resize(y.pool, k)
	for i := range y.pool {
		y.pool[i] = i
	}
	for i := range l {
		j := i + rng.IntN(k-i)
		y.pool[i], y.pool[j] = y.pool[j], y.pool[i]
	}
	y.drawn = append(y.drawn, y.pool[:l]...)
	return y.sorted(k)
}

// shuffleSparse is the same shuffle on a pool of which only what has moved is written down.
func (y *Lottery) shuffleSparse(k, l int, rng *rand.Rand) {
	if y.moved == nil {
		y.moved = map[int]int{}
	}
	clear(y.moved)
	at := func(i int) int {
		if v, ok := y.moved[i]; ok {
			return v
		}
		return i
	}
	for i := range l {
		j := i + rng.IntN(k-i)
		y.drawn = append(y.drawn, at(j))
		y.moved[j] = at(i)
	}
}

// WithReplacement draws l of k places uniformly with replacement (feddec Alg. 1 line 9); the Times add up to l.
func (y *Lottery) WithReplacement(k, l int, rng *rand.Rand) []Place {
	y.drawn = y.drawn[:0]
	for range l {
		y.drawn = append(y.drawn, rng.IntN(k))
	}
	return y.sorted(k)
}

// sorted counts what was drawn, in order.
func (y *Lottery) sorted(k int) []Place {
	y.places = y.places[:0]
	if k > scanFrom*len(y.drawn) {
		slices.Sort(y.drawn)
		for _, i := range y.drawn {
			if n := len(y.places); n > 0 && y.places[n-1].Index == i {
				y.places[n-1].Times++
			} else {
				y.places = append(y.places, Place{i, 1})
			}
		}
		return y.places
	}
	y.pool = resize(y.pool, k)
	clear(y.pool)
	for _, i := range y.drawn {
		y.pool[i]++
	}
	for i, n := range y.pool {
		if n > 0 {
			y.places = append(y.places, Place{i, n})
		}
	}
	return y.places
}

func resize(v []int, n int) []int {
	if cap(v) < n {
		return make([]int, n)
	}
	return v[:n]
}
