package learner

import "testing"

// TestAddSquares checks that the sum of squares is the same if a vector is processed in parts.
func TestAddSquares(t *testing.T) {
	v := []float32{0.1, -2, 3e-5, 7, 1e20, 1e-20}
	whole := AddSquares(0, v)
	for cut := range v {
		if got := AddSquares(AddSquares(0, v[:cut]), v[cut:]); got != whole {
			t.Errorf("cut at %d: %v, want %v", cut, got, whole)
		}
	}
	if got := AddSquares(9, []float64{4}); got != 25 {
		t.Errorf("9 + 4² is %v", got)
	}
}
