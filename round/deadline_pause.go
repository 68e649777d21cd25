package round

import "time"

// deadlinePause stops the time of a round while the host cannot store updates, so that the agents do not lose it. A
// round without a quorum is not abandoned in that time, and afterwards continues for the time that it had left. A round
// with a quorum closes as usual.
type deadlinePause struct {
	storageFailingSince time.Time // the host cannot write since then; zero if it can
	deadlineHeldSince   time.Time // the deadline, if it passed while the host could not write; else zero
	roundInterrupted    bool      // in this round the broker was unreachable or the host could not write
}

// roundTimeLeft returns the time to the round's deadline. It does not change while the host cannot write.
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

// roundTimeStoppedAt returns when the time of the round stopped.
func (c *CoordinatorMachine) roundTimeStoppedAt() time.Time {
	if c.deadlinePause.storageFailingSince.Before(c.phaseEnteredAt) {
		return c.phaseEnteredAt
	}
	return c.deadlinePause.storageFailingSince
}

// resumeRoundTime moves the deadline by the time in which the host could not write.
func (c *CoordinatorMachine) resumeRoundTime(now time.Time) {
	if c.deadlinePause.storageFailingSince.IsZero() {
		return
	}
	if c.isInPhase(CoordinatorCollecting) {
		c.phaseDeadline, c.deadlinePause.roundInterrupted = now.Add(c.roundTimeLeft(now)), true
	}
	c.deadlinePause.storageFailingSince, c.deadlinePause.deadlineHeldSince = time.Time{}, time.Time{}
}
