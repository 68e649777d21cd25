package task

import "testing"

func TestSpread(t *testing.T) {
	for h := uint64(1); h < 30; h++ {
		for e := uint64(1); e <= h; e++ {
			n := uint64(0)
			for s := uint64(1); s <= h; s++ {
				if IsGradientStep(s, h, e) {
					n++
				}
			}
			if n != e || !IsGradientStep(h, h, e) {
				t.Errorf("%d of %d steps take a gradient, want %d; most recently: %v", n, h, e, IsGradientStep(h, h, e))
			}
		}
	}
}
