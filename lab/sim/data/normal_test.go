package data

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestNormals checks that the generated numbers are bit-for-bit equal to the numbers of math/rand/v2, including draws
// of other kinds that follow.
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

// TestStrips checks the numbers at the limit of immediate acceptance of each strip.
func TestStrips(t *testing.T) {
	for i, s := range strips {
		for _, j := range []int32{0, 1, -1, int32(s.least) - 1, int32(s.least), -int32(s.least), math.MinInt32,
			math.MaxInt32} {
			u := uint64(i)<<32 | uint64(uint32(j))
			probe := trial{u, 0}
			want := rand.New(&probe).NormFloat64()
			z, ok := quickNormal(u)
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

// TestWedges checks points in all wedges, many of them near the curve.
func TestWedges(t *testing.T) {
	anywhere, sure := 0, 0
	rng := rand.New(rand.NewPCG(3, 4))
	for i := 1; i < len(strips); i++ {
		w := &wedges[i]
		for range 2000 {
			j := strips[i].least + uint32(rng.Uint64N(1<<31-uint64(strips[i].least)))
			x := float64(j) * strips[i].width
			second, beside := rng.Uint64(), false
			if at := (math.Exp(-x*x/2) - w.low) / w.rise; rng.IntN(2) == 0 && at > 0 && at < 1 {
				second = uint64(min(max(at+1e-4*rng.NormFloat64(), 0), 1) * (1<<53 - 1))
				beside = true
			}
			probe := scripted{uint64(i)<<32 | uint64(j), second}
			taken := rand.New(&probe).NormFloat64() == x
			below, ok := w.below(x, second)
			if !beside {
				anywhere++
				if ok {
					sure++
				}
			}
			if ok && below != taken {
				t.Fatalf("strip %d: the point %d over %v is below: %v, want %v", i, second, x, below, taken)
			}
		}
	}
	if float64(sure) < 0.99*float64(anywhere) {
		t.Errorf("only %d of %d points are told without NormFloat64", sure, anywhere)
	}
}

// scripted is a random source that returns the given numbers, and then a number that the ziggurat algorithm accepts
// immediately.
type scripted []uint64

func (s *scripted) Uint64() uint64 {
	if len(*s) == 0 {
		return 64 << 32
	}
	u := (*s)[0]
	*s = (*s)[1:]
	return u
}
