package data

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestNormals holds the draws against those of math/rand/v2, to the bit, and all that is drawn beside them.
func TestNormals(t *testing.T) {
	var a, b rand.PCG
	for seed := range uint64(100) {
		a.Seed(seed, 7)
		b.Seed(seed, 7)
		n, want := newNormals(&a), rand.New(&b)
		for i := range 20_000 {
			if x, y := n.next(), want.NormFloat64(); math.Float64bits(x) != math.Float64bits(y) {
				t.Fatalf("number %d is %v, want %v", i, x, y)
			}
		}
		if a != b {
			t.Fatal("the generators have parted")
		}
	}
}

// TestStrips tries the first numbers of each strip that are not taken at once, and the last that are.
func TestStrips(t *testing.T) {
	for i, s := range strips {
		for _, j := range []int32{0, 1, -1, int32(s.least) - 1, int32(s.least), -int32(s.least), math.MinInt32,
			math.MaxInt32} {
			u := uint64(i)<<32 | uint64(uint32(j))
			probe := trial{u, 0}
			want := rand.New(&probe).NormFloat64()
			z, ok := quick(u)
			if ok != (probe.draws == 1) || ok && math.Float64bits(z) != math.Float64bits(want) {
				t.Errorf("strip %d gives %v, %v for %d; NormFloat64 gives %v after %d draws", i, z, ok, j, want,
					probe.draws)
			}
		}
	}
}

func BenchmarkNormals(b *testing.B) {
	b.Run("own", func(b *testing.B) {
		n := newNormals(rand.NewPCG(1, 2))
		for b.Loop() {
			n.next()
		}
	})
	b.Run("NormFloat64", func(b *testing.B) {
		rng := rand.New(rand.NewPCG(1, 2))
		for b.Loop() {
			rng.NormFloat64()
		}
	})
}
