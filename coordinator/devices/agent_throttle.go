package devices

import (
	"maps"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// agentThrottle limits an action to once per interval for each agent, and to a maximum number per interval for all
// agents.
type agentThrottle struct {
	minIntervalPerAgent time.Duration
	maxPerInterval      int
	// lastAllowedAtByAgent contains the time of the last allowed action by agent, at most 2·maxPerInterval entries.
	lastAllowedAtByAgent map[wire.AgentID]time.Time
	intervalStartedAt    time.Time // start of the current interval
	allowedInInterval    int
}

func newAgentThrottle(every time.Duration, most int) agentThrottle {
	return agentThrottle{minIntervalPerAgent: every, maxPerInterval: most,
		lastAllowedAtByAgent: map[wire.AgentID]time.Time{}}
}

// allowAgent reports whether the action is allowed for an agent now. If so, it counts the action.
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
