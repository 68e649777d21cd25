package agent

import (
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// away is whether the agent leaves the broker for a while, and what it has told of itself over this link.
type away struct {
	online bool          // presence online is told
	wait   time.Duration // the link is given up for so long, when nothing needs it; 0 = it stays
}

// tellPresence says online, once over a link. Where only those with a part in a round tell their presence, it waits for
// that; such a link has no will, unless the agent had a part when it began.
func (a *Agent) tellPresence() {
	a.signer.quiet.Store(a.came.Announcement.Respond.Round && !a.machine.HasPart())
	if a.up && !a.away.online && !a.signer.quiet.Load() {
		a.away.online = true
		a.ask(a.signer.online())
	}
}

// sayOffline ends what was told.
func (a *Agent) sayOffline() {
	if a.away.online {
		a.publish(a.signer.presence(wire.StateOffline))
	}
}

// mayLeave leaves the broker, if the machine has said so and the agent has nothing else that needs the link.
func (a *Agent) mayLeave() {
	a.tellPresence()
	if a.away.wait == 0 || !a.up || !a.machine.MayLeave() || a.needsLink() {
		return
	}
	a.cfg.Logger.Info("disconnects: it has no part in the round", "for", a.away.wait.Round(time.Second))
	a.sayOffline()
	a.conn.Pause(a.away.wait)
	a.away.wait = 0
}

// askStill has an agent that would be silent, or leave, say hello for the outcome of an update, until it is told.
func (a *Agent) askStill() {
	if a.asks != (wire.Asked{}) && (a.machine.Silent() || a.machine.MayLeave()) {
		a.step(round.Unread{})
	}
}

// stranded says that a blob, or its key, is lacking: to who predicts not only for a round.
func (a *Agent) stranded() round.Stranded { return round.Stranded{Beyond: a.cfg.Predict != nil} }

// needsLink reports whether something beside the round does: what is under way, neighbours that are looked for over it
// or mixed with in a block without an end, models to predict with, another key or certificate, a test of the broker.
func (a *Agent) needsLink() bool {
	tested, testing := a.test.Deadline()
	return a.sender != nil || len(a.pulls) > 0 || a.ready != nil || a.evaluating.busy ||
		a.mesh.shared && a.mesh.scouts() || a.endless != nil || a.cfg.Predict != nil ||
		a.nextRoot != nil || !a.renewal.at.IsZero() || len(a.seals.locked) > 0 ||
		testing && tested.Before(a.owner.Now().Add(time.Minute))
}
