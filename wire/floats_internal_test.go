package wire

import (
	"math"
	"slices"
	"testing"
)

// TestTakeFloats decodes vectors of each length with and without assembly. In some vectors all elements are finite; in
// the others, one element at any position is not finite.
func TestTakeFloats(t *testing.T) {
	odd := []float32{math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Copysign(0, -1)),
		1e-40}
	inf := float32(math.Inf(1))
	for name, take := range map[string]func([]float32, []byte) bool{"with assembly": decodeFloats,
		"without assembly": decodeFloatsPortable} {
		for n := range 40 {
			v := make([]float32, n)
			for i := range v {
				v[i] = odd[i%len(odd)]
			}
			p, got := make([]byte, 4*n), make([]float32, n)
			if encodeFloats(p, v); !take(got, p) || !slices.Equal(got, v) {
				t.Errorf("%s: %d elements: %v", name, n, got)
			}
			for i := range v {
				for _, x := range []float32{inf, -inf, float32(math.NaN())} {
					bad := slices.Clone(v)
					bad[i] = x
					if encodeFloats(p, bad); take(got, p) {
						t.Errorf("%s: %v at %d of %d is finite", name, x, i, n)
					}
				}
			}
		}
	}
}
