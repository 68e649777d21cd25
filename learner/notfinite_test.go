package learner

import (
	"math"
	"testing"
)

// TestNotFinite checks that the first non-finite element is found at every position.
func TestNotFinite(t *testing.T) {
	for n := range 11 {
		if i := FirstNonFiniteIndex(make([]float32, n)); i != -1 {
			t.Errorf("of %d zeros number %d", n, i)
		}
		for at := range n {
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				v := make([]float64, n)
				for i := range v {
					v[i] = math.MaxFloat64 // Four such elements are finite, but their sum overflows.
				}
				v[at], v[n-1] = bad, bad
				if i := FirstNonFiniteIndex(v); i != at {
					t.Errorf("%v: number %d, want %d", v, i, at)
				}
			}
		}
	}
}
