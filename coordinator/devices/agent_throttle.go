package devices

import (
	"maps"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// agentThrottle counts what is done for devices: for one of them once in a time, for all of them a bounded number of
// times.
type agentThrottle struct {
	minIntervalPerAgent  time.Duration
	maxPerInterval       int
	lastAllowedAtByAgent map[wire.AgentID]time.Time // at most twice as many
	intervalStartedAt    time.Time                  // when counting began
	allowedInInterval    int
}

func newAgentThrottle(every time.Duration, most int) agentThrottle {
	return agentThrottle{minIntervalPerAgent: every, maxPerInterval: most,
		lastAllowedAtByAgent: map[wire.AgentID]time.Time{}}
}

// allowAgent reports whether something may be done for a device now, and counts that.
func (u *agentThrottle) allowAgent(agent wire.AgentID, now time.Time) bool {
	if now.Sub(u.intervalStartedAt) >= u.minIntervalPerAgent {
		u.intervalStartedAt, u.allowedInInterval = now, 0
		maps.DeleteFunc(u.lastAllowedAtByAgent, func(_ wire.AgentID,
			at time.Time) bool {
			return now.Sub(at) >= u.minIntervalPerAgent
		})
	}
	if at, done := u.lastAllowedAtByAgent[agent]; u.allowedInInterval == u.maxPerInterval || done &&
		now.Sub(at) < u.minIntervalPerAgent {
		return false
	}
	u.lastAllowedAtByAgent[agent] = now
	u.allowedInInterval++
	return true
}
