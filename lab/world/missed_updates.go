package world

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// calm is how long after the last fault all that was lost has been said again: an update is offered again after 30 s at
// most, and its chunks are lent again after 15 s.
const calm = 50 * time.Second

// missed takes note of a round that has missed updates. Long after the last fault none may.
func (c *check) missed(r wire.RoundID) {
	if since := c.w.here().Sub(c.w.healed); since > calm {
		c.w.fail("round %d misses updates, though nothing was wrong for %s", r, since)
	}
}
