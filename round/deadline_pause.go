package round

import "time"

// deadlinePause stops the clock of a round while the host cannot write to its disk. As soon as the host can write
// again, a round without a quorum continues with its remaining time.
type deadlinePause struct {
	storageFailingSince time.Time // start of the period in which the host cannot write to disk; zero if it can write
	// deadline of the round, if it passed while the host could not write to disk; otherwise zero
	deadlineHeldSince time.Time
	// whether the broker was unreachable or the disk could not be written during this round
	roundInterrupted bool
}

// roundTimeLeft returns the time until the round's deadline. The remaining time does not decrease while the host cannot
// write to disk.
func (c *CoordinatorMachine) roundTimeLeft(now time.Time) time.Duration {
	deadline := c.phaseDeadline
	if !c.deadlinePause.deadlineHeldSince.IsZero() {
		deadline = c.deadlinePause.deadlineHeldSince
	}
	if !c.deadlinePause.storageFailingSince.IsZero() {
		now = c.roundTimeStoppedAt()
	}
	return deadline.Sub(now)
}

// roundTimeStoppedAt returns the time at which the round's clock stopped because the host could not write to disk.
func (c *CoordinatorMachine) roundTimeStoppedAt() time.Time {
	if c.deadlinePause.storageFailingSince.Before(c.phaseEnteredAt) {
		return c.phaseEnteredAt
	}
	return c.deadlinePause.storageFailingSince
}

// resumeRoundTime extends the deadline by the time during which the host could not write to disk.
func (c *CoordinatorMachine) resumeRoundTime(now time.Time) {
	if c.deadlinePause.storageFailingSince.IsZero() {
		return
	}
	if c.isInPhase(CoordinatorCollecting) {
		c.phaseDeadline, c.deadlinePause.roundInterrupted = now.Add(c.roundTimeLeft(now)), true
	}
	c.deadlinePause.storageFailingSince, c.deadlinePause.deadlineHeldSince = time.Time{}, time.Time{}
}
