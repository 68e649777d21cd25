package wire

import (
	"math"
	"testing"
	"time"
)

// TestLongestAway checks that the sum of the largest DisconnectMillis and AbsenceSpreadMillis does not overflow.
func TestLongestAway(t *testing.T) {
	for want, r := range map[time.Duration]AgentResponsePolicy{
		0:                          {AnswerProbability: 7},
		11 * time.Minute:           {DisconnectMillis: 60_000, AbsenceSpreadMillis: 600_000},
		1 << 32 * time.Millisecond: {DisconnectMillis: math.MaxUint32, AbsenceSpreadMillis: 1},
	} {
		if got := r.MaxDisconnectTime(); got != want {
			t.Errorf("%+v: %s, want %s", r, got, want)
		}
	}
}
