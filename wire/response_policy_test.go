package wire

import (
	"math"
	"testing"
	"time"
)

// TestLongestAway: what an announcement may say is added up without a wrap.
func TestLongestAway(t *testing.T) {
	for want, r := range map[time.Duration]ResponsePolicy{
		0:                          {AnswerThreshold: 7},
		11 * time.Minute:           {AwayMillis: 60_000, AwaySpreadMillis: 600_000},
		1 << 32 * time.Millisecond: {AwayMillis: math.MaxUint32, AwaySpreadMillis: 1},
	} {
		if got := r.MaxAwayTime(); got != want {
			t.Errorf("%+v: %s, want %s", r, got, want)
		}
	}
}
