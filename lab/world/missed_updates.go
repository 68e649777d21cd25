package world

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// recoveryTime is the maximum time, after the last fault, until all lost messages have been sent again. Agents repeat
// the offer of an update after at most 30 s, and send chunks again after at most 15 s.
const recoveryTime = 50 * time.Second

// missed is called when a round closes without some of the updates. The run fails if this happens more than
// recoveryTime after the end of the last fault.
func (c *invariantChecker) missed(r wire.RoundID) {
	if since := c.w.jobTime().Sub(c.w.healed); since > recoveryTime {
		c.w.fail("round %d has missing updates although no fault occurred for %s", r, since)
	}
}
