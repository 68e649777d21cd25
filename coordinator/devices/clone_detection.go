package devices

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// cloneReportInterval is the minimum time between two reports that an agent's identity is used by two devices.
const cloneReportInterval = time.Hour

// cloneDetector stores the two most recent boots (process starts) of an agent. After a restart, the previous boot sends
// no new messages, although the broker may repeat old ones. If two boots alternate in sending newer messages, two
// devices share one identity.
type cloneDetector struct {
	currentBoot, previousBoot agentBoot
	bootAlternations          int // number of times a previous boot sent a new message
	lastReportedAt            time.Time
}

// agentBoot identifies one start of an agent process. Two devices with the same identity may have equal epochs, but
// their random nonces differ.
type agentBoot struct {
	epoch          wire.Epoch
	nonce          uint64
	newestSequence uint64 // sequence number of the boot's newest message
}

func (s agentBoot) isSameBoot(o agentBoot) bool { return s.epoch == o.epoch && s.nonce == o.nonce }

// observeBoot records a message of a boot and reports whether two boots of the agent alternate, so that two devices
// share one identity.
func (t *cloneDetector) observeBoot(s agentBoot) bool {
	switch {
	case s.isSameBoot(t.currentBoot):
		t.currentBoot.newestSequence = max(t.currentBoot.newestSequence, s.newestSequence)
		return false
	case s.isSameBoot(t.previousBoot):
		if s.newestSequence <= t.previousBoot.newestSequence {
			return false // the broker has repeated an old message
		}
		t.bootAlternations++
	default:
		t.bootAlternations = 0
	}
	t.currentBoot, t.previousBoot = s, t.currentBoot
	return t.bootAlternations >= 2
}

// bootNonceOf returns the nonce in a hello or an online presence. It ignores the last will, which the broker may
// publish after the first messages of the next boot.
func bootNonceOf(e *wire.Envelope) (nonce uint64, ok bool) {
	switch e.Type {
	case wire.TypeHello:
		m, err := wire.DecodeHello(e.Body)
		return m.InstanceNonce, err == nil
	case wire.TypePresence:
		m, err := wire.DecodePresence(e.Body)
		return m.InstanceNonce, err == nil && m.State == wire.PresenceOnline
	}
	return 0, false
}

// detectClone reports whether two devices send messages as this agent. It must see every message that the agent has
// signed, even from older boots.
func (d *MessageChecker) detectClone(agent wire.AgentID, e *wire.Envelope) bool {
	nonce, ok := bootNonceOf(e)
	if !ok {
		return false
	}
	t := d.cloneDetectorByAgent[agent]
	if t == nil {
		t = new(cloneDetector)
		d.cloneDetectorByAgent[agent] = t
	}
	if !t.observeBoot(agentBoot{e.Epoch, nonce, e.Sequence}) {
		return false
	}
	if now := d.cfg.Now(); t.lastReportedAt.IsZero() || now.Sub(t.lastReportedAt) >= cloneReportInterval {
		t.lastReportedAt = now
		d.cfg.Observer.Observe(CloneSeen{
			Agent: agent, BootEpochs: [2]wire.Epoch{t.previousBoot.epoch, t.currentBoot.epoch},
			Nonces: [2]uint64{t.previousBoot.nonce, t.currentBoot.nonce},
		})
	}
	return true
}

// CloneSeen reports that two devices send messages as one agent. It occurs at most once an hour for each agent.
type CloneSeen struct {
	Agent      wire.AgentID
	BootEpochs [2]wire.Epoch
	Nonces     [2]uint64
}

// Describe implements observe.Event. The condition lasts until the agent is removed from the list or its key is
// replaced.
func (e CloneSeen) Describe(d *observe.EventDescription) {
	d.IncCounter(host.ClonesSeen)
	d.Log(observe.Error, "two devices use the identity of the same agent", "agent", e.Agent, "starts",
		fmt.Sprintf("start %d (nonce %016x) and start %d (nonce %016x)", e.BootEpochs[0], e.Nonces[0], e.BootEpochs[1],
			e.Nonces[1]))
	d.RaiseCondition(CloneConditionName(e.Agent), fmt.Sprintf("two devices use the identity of %s", e.Agent),
		"give one of the devices its own id and key with `agentd key new`, and add it to identity.agents_file")
}

// CloneConditionName returns the name of the condition that CloneSeen raises.
func CloneConditionName(agent wire.AgentID) string { return "clone " + string(agent) }
