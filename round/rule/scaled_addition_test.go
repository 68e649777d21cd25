package rule

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAddScaled checks that addScaled gives bitwise the same result as a plain loop for all lengths and memory
// alignments.
func TestAddScaled(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	special := []float64{0, math.Copysign(0, -1), math.SmallestNonzeroFloat32, math.MaxFloat32, 1, -1, 1.0 / 3}
	draw := func() float64 {
		if rng.IntN(4) == 0 {
			return special[rng.IntN(len(special))]
		}
		return rng.NormFloat64()
	}
	for n := range 150 {
		for at := range 3 {
			acc, v := make([]float64, n+at)[at:], make([]float32, n+at+1)[at+1:]
			for i := range v {
				acc[i], v[i] = draw(), float32(draw())
			}
			f := draw()
			want := slices.Clone(acc)
			for i, x := range v {
				want[i] += float64(f * float64(x))
			}
			pure, named := slices.Clone(acc), slices.Clone(acc)
			addScaledGo(pure, f, v)
			type other float32 // The vector instructions do not support this type.
			w := make([]other, n)
			for i, x := range v {
				w[i] = other(x)
			}
			addScaled(named, f, w)
			addScaled(acc, f, v)
			for i := range want {
				for name, got := range map[string]float64{"": acc[i], " in Go": pure[i], " of another type": named[i]} {
					if math.Float64bits(got) != math.Float64bits(want[i]) {
						t.Fatalf("element %d of %d%s: %v, want %v", i, n, name, got, want[i])
					}
				}
			}
		}
	}
}
