package devices

import (
	"fmt"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// TestRejectionsAreBounded checks that many ids, or one persistent id, cause only a bounded number of rejections and
// bounded memory.
func TestRejectionsAreBounded(t *testing.T) {
	u := newAgentThrottle(rejectionInterval, maxRejectionsPerInterval)
	begin := time.Unix(1e9, 0)
	told, one := 0, 0
	var last time.Time
	for second := range 600 {
		now := begin.Add(time.Duration(second) * time.Second)
		if u.allowAgent("one", now) {
			if one > 0 && now.Sub(last) < rejectionInterval {
				t.Errorf("one is told again after %s", now.Sub(last))
			}
			one, last, told = one+1, now, told+1
		}
		for k := range 10 {
			if u.allowAgent(wire.AgentID(fmt.Sprint(second, "-", k)), now) {
				told++
			}
		}
		if len(u.lastAllowedAtByAgent) > 2*maxRejectionsPerInterval {
			t.Fatalf("%d ids are kept", len(u.lastAllowedAtByAgent))
		}
	}
	if told != 10*maxRejectionsPerInterval || one < 9 {
		t.Errorf("%d answers in ten minutes, %d of them to one; want %d and 9 or 10", told, one,
			10*maxRejectionsPerInterval)
	}
}
