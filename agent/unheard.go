package agent

import (
	"slices"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// hearing is what the agent knows of not being heard. It changes nothing of what the agent does.
type hearing struct {
	asked  [4]wire.Digest // the newest hellos, presences and reports, since the coordinator heard one
	next   int
	reason wire.UnheardReason // as the coordinator has told; 0 = none
}

// ask publishes a hello, a presence or a report, which the coordinator may answer.
func (a *Agent) ask(m mqtt.Message) {
	u := &a.hearing
	if e, err := wire.Open(m.Payload); err == nil {
		u.asked[u.next] = e.Digest()
		u.next = (u.next + 1) % len(u.asked)
	}
	a.publish(m)
}

// hearUnheard takes the coordinator's word that it does not use a message of this agent. Only an answer to one that it
// has not answered otherwise counts: an older one may be replayed by anybody.
func (a *Agent) hearUnheard(m wire.Unheard) error {
	if m.Answers.IsZero() || !slices.Contains(a.hearing.asked[:], m.Answers) {
		return host.Drop(DropUnwanted, "an answer (%s) to a message that this agent does not wait for", m.Reason)
	}
	a.tellUnheard(m.Reason)
	if m.Reason == wire.UnheardKey {
		a.askForNextKey() // the list may have the next one
	}
	return nil
}

// heard is called when an answer shows that the coordinator has heard the agent. Where two devices have its identity,
// that may have been the other one.
func (a *Agent) heard() {
	a.hearing.asked = [4]wire.Digest{}
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
