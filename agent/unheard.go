package agent

import (
	"slices"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// hearing is what the agent knows of not being heard. It changes nothing of what the agent does.
type hearing struct {
	said   [4]wire.Digest // the newest hellos, presences and reports, but for those that were told not to be used
	asks   [4]bool        // which of them the coordinator has not answered otherwise
	next   int
	reason wire.UnheardReason // as the coordinator has told; 0 = none
}

// ask publishes a hello, a presence or a report, which the coordinator may answer.
func (a *Agent) ask(m mqtt.Message) {
	u := &a.hearing
	if e, err := wire.Open(m.Payload); err == nil {
		u.said[u.next], u.asks[u.next] = e.Digest(), true
		u.next = (u.next + 1) % len(u.said)
	}
	a.publish(m)
}

// hearUnheard takes the coordinator's word that it does not use a message of this agent, or, if that is taken off the
// list, no message after it. It counts once for a message, and otherwise only for one that was not answered: an older
// word may be replayed by anybody.
func (a *Agent) hearUnheard(m wire.Unheard) error {
	u := &a.hearing
	i := slices.Index(u.said[:], m.Answers)
	if m.Answers.IsZero() || i < 0 || !u.asks[i] && m.Reason != wire.UnheardUnlisted {
		return host.Drop(DropUnwanted, "an answer (%s) to a message that this agent does not wait for", m.Reason)
	}
	u.said[i] = wire.Digest{}
	a.tellUnheard(m.Reason)
	if m.Reason == wire.UnheardKey {
		a.askForNextKey() // the list may have the next one
	}
	return nil
}

// heard is called when an answer shows that the coordinator has heard the agent. Where two devices have its identity,
// that may have been the other one.
func (a *Agent) heard() {
	a.evaluationHeard()
	a.hearing.asks = [4]bool{}
	if a.hearing.reason != wire.UnheardClone {
		a.tellUnheard(0)
	}
}

func (a *Agent) tellUnheard(reason wire.UnheardReason) {
	if reason != a.hearing.reason {
		a.hearing.reason = reason
		a.cfg.Observer.Observe(Unheard{reason})
	}
}
