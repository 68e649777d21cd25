package round_test

import (
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/round"
)

// TestSamplerIsTheShuffle checks that both implementations of a draw give the same result as a plain shuffle of all
// indices.
func TestSamplerIsTheShuffle(t *testing.T) {
	// All draws share this sampler, to check that the buffers it reuses do not affect results.
	var y round.IndexSampler
	for _, k := range []int{1, 2, 7, 40, 1000} {
		for _, l := range []int{0, 1, 2, 5, 39, 40, 41, 999, 1000} {
			rng := ofRound(k + l)
			pool := make([]int, k)
			for i := range pool {
				pool[i] = i
			}
			n := min(l, k)
			for i := range n {
				j := i + rng.IntN(k-i)
				pool[i], pool[j] = pool[j], pool[i]
			}
			want := slices.Sorted(slices.Values(pool[:n]))
			var got []int
			for _, p := range y.DrawWithoutReplacement(k, l, ofRound(k+l)) {
				got = append(got, p.Index)
				if p.DrawCount != 1 {
					t.Fatalf("K = %d, L = %d: place %d drawn %d times", k, l, p.Index, p.DrawCount)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("K = %d, L = %d: drew %v, want %v", k, l, got, want)
			}
			counts := make([]int, k)
			rng = ofRound(k + l)
			for range l {
				counts[rng.IntN(k)]++
			}
			for _, p := range y.DrawWithReplacement(k, l, ofRound(k+l)) {
				if counts[p.Index] != p.DrawCount {
					t.Fatalf("K = %d, L = %d with replacement: place %d drawn %d times, want %d", k, l, p.Index,
						p.DrawCount, counts[p.Index])
				}
				counts[p.Index] = 0
			}
			if slices.Max(counts) > 0 {
				t.Fatalf("K = %d, L = %d with replacement: places are missing", k, l)
			}
		}
	}
}

// BenchmarkSampler measures drawing 50 of a million indices and 50 of a thousand indices. The cost must not grow with
// the number of indices from which the sampler draws.
func BenchmarkSampler(b *testing.B) {
	for _, c := range []struct {
		name string
		k    int
	}{{"K1e3", 1000}, {"K1e6", 1000000}} {
		b.Run(c.name, func(b *testing.B) {
			var y round.IndexSampler
			rng := ofRound(1)
			for b.Loop() {
				y.DrawWithoutReplacement(c.k, 50, rng)
			}
		})
	}
}
