package wire

import (
	"math"
	"testing"
	"time"
)

// TestLongestAway: what an announcement may say is added up without a wrap.
func TestLongestAway(t *testing.T) {
	for want, r := range map[time.Duration]Respond{
		0:                          {Of: 7},
		11 * time.Minute:           {After: 60_000, Within: 600_000},
		1 << 32 * time.Millisecond: {After: math.MaxUint32, Within: 1},
	} {
		if got := r.Longest(); got != want {
			t.Errorf("%+v: %s, want %s", r, got, want)
		}
	}
}
