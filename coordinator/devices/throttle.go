package devices

import (
	"maps"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// throttle counts what is done for devices: for one of them once in a time, for all of them a bounded number of times.
type throttle struct {
	minIntervalPerAgent time.Duration
	maxPerInterval      int
	lastTimeByAgent     map[wire.AgentID]time.Time // at most twice as many
	intervalStartedAt   time.Time                  // when counting began
	countInInterval     int
}

func newThrottle(every time.Duration, most int) throttle {
	return throttle{minIntervalPerAgent: every, maxPerInterval: most, lastTimeByAgent: map[wire.AgentID]time.Time{}}
}

// allow reports whether something may be done for a device now, and counts that.
func (u *throttle) allow(agent wire.AgentID, now time.Time) bool {
	if now.Sub(u.intervalStartedAt) >= u.minIntervalPerAgent {
		u.intervalStartedAt, u.countInInterval = now, 0
		maps.DeleteFunc(u.lastTimeByAgent, func(_ wire.AgentID,
			at time.Time) bool {
			return now.Sub(at) >= u.minIntervalPerAgent
		})
	}
	if at, done := u.lastTimeByAgent[agent]; u.countInInterval == u.maxPerInterval || done &&
		now.Sub(at) < u.minIntervalPerAgent {
		return false
	}
	u.lastTimeByAgent[agent] = now
	u.countInInterval++
	return true
}
