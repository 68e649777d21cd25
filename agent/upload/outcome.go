package upload

import (
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// FindFate finds out whether the coordinator has used an update whose round is over: from the announcement if it
// contains the outcome of the round, otherwise the next hello asks for it.
func (p *Part) FindFate(e agentround.FindUpdateFate) {
	if e.AggregatedRound == e.Round && e.Outcome.Inline != nil {
		if o, err := wire.DecodeRoundOutcome(e.Outcome.Inline); err == nil && o.Round == e.Round {
			p.settle(e.Position.Run, e.Round, o.FateOf(wire.UpdateTagOf(e.Position.Run, e.Round, p.core.ID, e.Update)))
			return
		}
	}
	p.outcomeRequest = wire.OutcomeRequest{Round: e.Round, Update: e.Update}
	p.core.Step(agentround.UpdateOutcomeUnknown{})
}

// AwaitsFate reports whether the fate of an update is unknown.
func (p *Part) AwaitsFate() bool { return p.outcomeRequest != wire.OutcomeRequest{} }

// receiveFate handles the coordinator's answer to an outcome request.
func (p *Part) receiveFate(h wire.Header, m wire.UpdateSettled) {
	if p.outcomeRequest == (wire.OutcomeRequest{Round: h.Round,
		Update: m.Update}) && p.core.ObeyedPosition.Run == h.Run {
		p.settle(h.Run, h.Round, m.Fate)
	}
}

func (p *Part) settle(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
	if p.outcomeRequest.Round == r {
		p.outcomeRequest = wire.OutcomeRequest{}
	}
	p.settled(run, r, f)
	p.applyFate(run, r, f)
	p.core.Observer.Observe(Settled{Round: r, Fate: f})
}

var settledUpdates = observe.CounterByLabel("updates_settled_total",
	"Updates of this device whose round is over, by what became of them: folded into the model, left out "+
		"of it (not_finite, risk, norm, refuse_above, rule), missed (not there when the round was closed), "+
		"abandoned with their round, or unknown.",
	"fate", observe.StringerNames(wire.Fates()))

// Settled: the coordinator has reported what became of an update of a round that is over.
type Settled struct {
	Round wire.RoundID
	Fate  wire.UpdateFate
}

// Describe implements observe.Event.
func (e Settled) Describe(d *observe.Description) {
	d.Inc(settledUpdates, e.Fate.String())
	if e.Fate != wire.FateFolded {
		d.Log(observe.Info, "update is not in the model", "round", e.Round, "fate", e.Fate)
	}
}
