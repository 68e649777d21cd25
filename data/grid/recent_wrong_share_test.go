package grid_test

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/data/grid"
)

// TestRecent checks that the share of wrong values is exact for up to a hundred values, and that older values then lose
// weight.
func TestRecent(t *testing.T) {
	var r grid.RecentWrongShare
	for n, wrong := 1, 0; n <= 100; n++ {
		if n%3 == 0 {
			wrong++
		}
		r.CountValue(n%3 == 0)
		if want := float64(wrong) / float64(n); math.Abs(r.Share()-want) > 1e-12 {
			t.Fatalf("of %d values %v, want %v", n, r.Share(), want)
		}
	}
	for range 10_000 {
		r.CountValue(true)
	}
	n := 0
	for ; r.Share() >= 0.2; n++ {
		r.CountValue(false)
	}
	if n != 161 {
		t.Errorf("below a fifth after %d", n)
	}
}
