package round

import "time"

// Time in which the host cannot store updates is not the agents' to lose. A round
// without a quorum is not given up meanwhile, and goes on for as long as it had
// left. A round with a quorum closes as ever.

// left is the time to the round's deadline, which stands still while the host
// cannot write.
func (c *Coordinator) left(now time.Time) time.Duration {
	deadline := c.wakeAt
	if !c.deadlineHeldSince.IsZero() {
		deadline = c.deadlineHeldSince
	}
	if !c.failedAt.IsZero() {
		now = c.stopped()
	}
	return deadline.Sub(now)
}

// stopped is when the round's time began to stand still.
func (c *Coordinator) stopped() time.Time {
	if c.failedAt.Before(c.entered) {
		return c.entered
	}
	return c.failedAt
}

// mended lets the round's time go on.
func (c *Coordinator) mended(now time.Time) {
	if c.failedAt.IsZero() {
		return
	}
	if c.in(CoordinatorCollecting) {
		c.wakeAt, c.cut = now.Add(c.left(now)), true
	}
	c.failedAt, c.deadlineHeldSince = time.Time{}, time.Time{}
}
