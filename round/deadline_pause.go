package round

import "time"

// Time in which the host cannot store updates is not the agents' to lose. A round
// without a quorum is not given up meanwhile, and goes on for as long as it had
// left. A round with a quorum closes as ever.

// timeLeft is the time to the round's deadline, which stands still while the host
// cannot write.
func (c *Coordinator) timeLeft(now time.Time) time.Duration {
	deadline := c.phaseDeadline
	if !c.deadlineHeldSince.IsZero() {
		deadline = c.deadlineHeldSince
	}
	if !c.hostFailingSince.IsZero() {
		now = c.roundTimeStoppedAt()
	}
	return deadline.Sub(now)
}

// roundTimeStoppedAt is when the round's time began to stand still.
func (c *Coordinator) roundTimeStoppedAt() time.Time {
	if c.hostFailingSince.Before(c.phaseEnteredAt) {
		return c.phaseEnteredAt
	}
	return c.hostFailingSince
}

// resumeRoundTime lets the round's time go on.
func (c *Coordinator) resumeRoundTime(now time.Time) {
	if c.hostFailingSince.IsZero() {
		return
	}
	if c.isInPhase(CoordinatorCollecting) {
		c.phaseDeadline, c.roundInterrupted = now.Add(c.timeLeft(now)), true
	}
	c.hostFailingSince, c.deadlineHeldSince = time.Time{}, time.Time{}
}
