package world

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// recoveryTime is how long after the last fault all that was lost has been said again: an update is offered again after
// 30 s at most, and its chunks are lent again after 15 s.
const recoveryTime = 50 * time.Second

// missed takes note of a round that has missed updates. Long after the last fault none may.
func (c *invariantChecker) missed(r wire.RoundID) {
	if since := c.w.jobTime().Sub(c.w.healed); since > recoveryTime {
		c.w.fail("round %d misses updates, though nothing was wrong for %s", r, since)
	}
}
