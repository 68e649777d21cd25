package upload

import (
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// FindUpdateFate determines whether the coordinator has used an update after the update's round has ended. It reads the
// outcome in the announcement, or requests the outcome in the next hello message.
func (p *UpdateUploader) FindUpdateFate(e agentround.FindUpdateFate) {
	if e.LastEndedRound == e.Round && e.RoundOutcome.Inline != nil {
		if o, err := wire.DecodeRoundOutcome(e.RoundOutcome.Inline); err == nil && o.Round == e.Round {
			p.recordUpdateFate(e.Position.Run, e.Round, o.FateOf(wire.UpdateTagOf(e.Position.Run, e.Round, p.core.ID,
				e.UpdateDigest)))
			return
		}
	}
	p.fateRequest = wire.UpdateFateRequest{Round: e.Round, Update: e.UpdateDigest}
	p.core.HandleRoundEvent(agentround.UpdateFateUnknown{})
}

// AwaitsUpdateFate reports whether the agent waits to learn if the coordinator has used an update.
func (p *UpdateUploader) AwaitsUpdateFate() bool { return p.fateRequest != wire.UpdateFateRequest{} }

// receiveFateAnswer processes the coordinator's answer about whether an update was used.
func (p *UpdateUploader) receiveFateAnswer(h wire.Header, m wire.UpdateFateAnswer) {
	if p.fateRequest == (wire.UpdateFateRequest{Round: h.Round,
		Update: m.Update}) && p.core.ObeyedPosition.Run == h.Run {
		p.recordUpdateFate(h.Run, h.Round, m.Fate)
	}
}

func (p *UpdateUploader) recordUpdateFate(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
	if p.fateRequest.Round == r {
		p.fateRequest = wire.UpdateFateRequest{}
	}
	p.onUpdateFate(run, r, f)
	p.applyFateToResidual(run, r, f)
	p.core.Observer.Observe(UpdateFateReceived{Round: r, Fate: f})
}

var settledUpdates = observe.CounterByLabel("updates_settled_total",
	"Updates of completed rounds, by result: folded (aggregated), left out (with a reason), missed (not received in "+
		"time), abandoned with the round, or unknown.",
	"fate", observe.StringerNames(wire.UpdateFates()))

// UpdateFateReceived reports whether the coordinator has used an update. It is emitted after the update's round has
// ended.
type UpdateFateReceived struct {
	Round wire.RoundID
	Fate  wire.UpdateFate
}

// Describe implements observe.Event.
func (e UpdateFateReceived) Describe(d *observe.EventDescription) {
	d.IncCounter(settledUpdates, e.Fate.String())
	if e.Fate != wire.FateAggregated {
		d.Log(observe.Info, "update of this device was not included in the model", "round", e.Round, "fate", e.Fate)
	}
}
