package devices

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// cloneReportInterval is the time between two reports of the same agent's clones.
const cloneReportInterval = time.Hour

// cloneDetector has the two starts of one agent that have sent the newest messages. After a restart, the previous start
// sends nothing, although a broker may repeat an old message. If each of the two starts sends a newer message after the
// other, two devices have one identity.
type cloneDetector struct {
	currentBoot, previousBoot agentBoot
	bootAlternations          int // times that a start has sent a newer message after the other
	lastReportedAt            time.Time
}

// agentBoot is one start of an agent. Clones may have the same epoch, but never the same nonce.
type agentBoot struct {
	epoch          wire.Epoch
	nonce          uint64
	newestSequence uint64 // of its newest message
}

func (s agentBoot) isSameBoot(o agentBoot) bool { return s.epoch == o.epoch && s.nonce == o.nonce }

// observeBoot notes a message of a start, and reports whether two starts send messages in turn.
func (t *cloneDetector) observeBoot(s agentBoot) bool {
	switch {
	case s.isSameBoot(t.currentBoot):
		t.currentBoot.newestSequence = max(t.currentBoot.newestSequence, s.newestSequence)
		return false
	case s.isSameBoot(t.previousBoot):
		if s.newestSequence <= t.previousBoot.newestSequence {
			return false // an old message
		}
		t.bootAlternations++
	default:
		t.bootAlternations = 0
	}
	t.currentBoot, t.previousBoot = s, t.currentBoot
	return t.bootAlternations >= 2
}

// bootNonceOf returns the nonce in a hello or a presence. The nonce of a will does not count: the broker may publish it
// after the first messages of the next start.
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

// detectClone looks at a message that its agent has signed, before messages of older starts are dropped. It reports
// whether two devices send messages as this agent.
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

// CloneSeen: two devices send messages as one agent. The event is repeated once an hour for each agent.
type CloneSeen struct {
	Agent      wire.AgentID
	BootEpochs [2]wire.Epoch
	Nonces     [2]uint64
}

// Describe implements observe.Event. The condition lasts until the agent is removed from the list or gets another key.
func (e CloneSeen) Describe(d *observe.EventDescription) {
	d.IncCounter(host.ClonesSeen)
	d.Log(observe.Error, "two devices use the identity of one agent", "agent", e.Agent, "starts",
		fmt.Sprintf("%d (%016x) and %d (%016x)", e.BootEpochs[0], e.Nonces[0], e.BootEpochs[1], e.Nonces[1]))
	d.RaiseCondition(CloneConditionName(e.Agent), fmt.Sprintf("two devices use the identity of %s", e.Agent),
		"give one of them an id and a key of its own with `agentd key new`, and add it to identity.agents_file")
}

// CloneConditionName is the name of the condition of CloneSeen.
func CloneConditionName(agent wire.AgentID) string { return "clone " + string(agent) }
