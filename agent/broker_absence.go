package agent

import (
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// queryPendingOutcome has an agent that would be silent, or leave, say hello for the outcome of an update, until it is
// told.
func (a *Agent) queryPendingOutcome() {
	if a.outcomeQuery != (wire.OutcomeRequest{}) && (a.machine.SendsNoHello() || a.machine.MayDisconnect()) {
		a.stepRoundMachine(round.UpdateOutcomeUnknown{})
	}
}

// needsLink reports whether anything other than the round needs the link: a transfer or job in progress, neighbours
// that are reached over it, models to predict with, a key for sealed blobs, a test of the broker, or a part.
func (a *Agent) needsLink() bool {
	for p := range part.Implementing[part.LinkUser](a.parts) {
		if p.NeedsLink() {
			return true
		}
	}
	tested, testing := a.brokerSelfTest.Deadline()
	return a.sender != nil || a.currentUpdate != nil || a.endless != nil ||
		a.fetch.AwaitsKey() && !a.machine.SendsNoHello() ||
		testing && tested.Before(a.owner.Now().Add(time.Minute))
}
