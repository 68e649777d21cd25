package world

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// recoveryTime is the time after the last fault in which all lost messages are sent again. Updates are offered again
// after at most 30 s, and their chunks after 15 s.
const recoveryTime = 50 * time.Second

// missed records a round with missing updates. It fails if the last fault was more than recoveryTime ago.
func (c *invariantChecker) missed(r wire.RoundID) {
	if since := c.w.jobTime().Sub(c.w.healed); since > recoveryTime {
		c.w.fail("round %d has missing updates although no fault occurred for %s", r, since)
	}
}
