package observe

import (
	"math"
	"testing"
)

func TestRounded(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, 1: 1, 0.123456: 0.1235, -0.00123456: -0.001235, 98765.4: 98770,
		math.Inf(1): math.Inf(1)} {
		if got := RoundToFourDigits(x); got != want {
			t.Errorf("Rounded(%v) is %v, want %v", x, got, want)
		}
	}
}
