package predict

import "testing"

// TestIsWorse checks that the margin is a share of the absolute value of the risk.
func TestIsWorse(t *testing.T) {
	for _, tt := range []struct {
		risk, old, margin float64
		want              bool
	}{
		{1, 1, 0, false}, {1.04, 1, 0.05, false}, {1.06, 1, 0.05, true}, {0, 0, 0.05, false},
		{-1, -1, 0.05, false}, {-0.96, -1, 0.05, false}, {-0.94, -1, 0.05, true}, {-2, -1, 0, false},
	} {
		if got := isWorse(tt.risk, tt.old, tt.margin); got != tt.want {
			t.Errorf("risk %v after %v with margin %v: worse is %v", tt.risk, tt.old, tt.margin, got)
		}
	}
}
