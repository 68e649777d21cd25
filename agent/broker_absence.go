package agent

import (
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// brokerAbsence is whether the agent leaves the broker for a while, and what it has told of itself over this link.
type brokerAbsence struct {
	onlinePublished bool          // presence online is told
	plannedAbsence  time.Duration // the link is given up for so long, when nothing needs it; 0 = it stays
	reconnectAt     time.Time     // it is given up until then; zero = it is not
}

// publishOnline says online, once over a link. Where only those with a part in a round tell their presence, it waits
// for that; such a link has no will, unless the agent had a part when it began.
func (a *Agent) publishOnline() {
	a.signer.skipPresence.Store(a.core.Announcement.Announcement.Respond.PresenceInRoundOnly &&
		!a.machine.HasRoundWork())
	if a.core.Connected && !a.away.onlinePublished && !a.signer.skipPresence.Load() {
		a.away.onlinePublished = true
		a.publishExpectingAnswer(a.signer.onlinePresenceForLink())
	}
}

// publishOffline ends what was told. Where only those with a part in a round tell their presence, the broker keeps none
// of one that has left.
func (a *Agent) publishOffline() {
	if !a.away.onlinePublished {
		return
	}
	m := a.signer.presence(wire.StateOffline)
	m.Retained = !a.core.Announcement.Announcement.Respond.PresenceInRoundOnly
	a.publish(m)
	if !m.Retained {
		a.publish(mqtt.Message{Topic: m.Topic, QoS: m.QoS, Retained: true})
	}
}

// disconnectFor gives up the link for a while.
func (a *Agent) disconnectFor(d time.Duration) {
	a.away.reconnectAt = a.owner.Now().Add(d)
	a.conn.Pause(d)
}

// linkDown tells that the link is gone, and until when, if the agent has given it up.
func (a *Agent) linkDown(err error) {
	if !errors.Is(err, mqtt.ErrPaused) {
		a.away.reconnectAt = time.Time{}
	}
	a.cfg.Observer.Observe(host.LinkChanged{Err: err, ReconnectAt: a.away.reconnectAt})
}

// disconnectIfIdle leaves the broker, if the machine has said so and the agent has nothing else that needs the link.
func (a *Agent) disconnectIfIdle() {
	a.publishOnline()
	if a.away.plannedAbsence == 0 || !a.core.Connected || !a.machine.MayDisconnect() || a.needsLink() {
		return
	}
	a.cfg.Logger.Info("disconnects: it has no part in the round", "for", a.away.plannedAbsence.Round(time.Second))
	a.publishOffline()
	a.announcementAge.postponeStaleness(a.away.plannedAbsence)
	a.disconnectFor(a.away.plannedAbsence)
	a.away.plannedAbsence = 0
}

// queryPendingOutcome has an agent that would be silent, or leave, say hello for the outcome of an update, until it is
// told.
func (a *Agent) queryPendingOutcome() {
	if a.outcomeQuery != (wire.OutcomeRequest{}) && (a.machine.SendsNoHello() || a.machine.MayDisconnect()) {
		a.stepRoundMachine(round.UpdateOutcomeUnknown{})
	}
}

// needsLink reports whether something beside the round does: what is under way, neighbours that are looked for over it
// or mixed with in a block without an end, models to predict with, another key or certificate, a test of the broker, a
// report that is due soon and before the agent would be back.
func (a *Agent) needsLink() bool {
	for p := range part.Implementing[part.LinkUser](a.parts) {
		if p.NeedsLink() {
			return true
		}
	}
	tested, testing := a.brokerSelfTest.Deadline()
	report, reports := a.reportDue()
	return a.sender != nil || a.currentUpdate != nil || a.evaluating.busy ||
		a.mesh.sharesUplink && a.mesh.hasCell() || a.endless != nil || a.cfg.Predict != nil ||
		a.fetch.AwaitsKey() && !a.machine.SendsNoHello() ||
		testing && tested.Before(a.owner.Now().Add(time.Minute)) ||
		reports && report.Before(a.owner.Now().Add(min(a.away.plannedAbsence, reportSpread)))
}
