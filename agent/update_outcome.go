package agent

import (
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// findUpdateFate finds out what became of an update whose round is over: from the announcement if it contains the
// outcome of the round, otherwise by the next hello.
func (a *Agent) findUpdateFate(e round.FindUpdateFate) {
	if e.AggregatedRound == e.Round && e.Outcome.Inline != nil {
		if o, err := wire.DecodeRoundOutcome(e.Outcome.Inline); err == nil && o.Round == e.Round {
			a.settleUpdate(e.Position.Run, e.Round, o.FateOf(wire.UpdateTagOf(e.Position.Run, e.Round, a.cfg.ID,
				e.Update)))
			return
		}
	}
	a.outcomeQuery = wire.OutcomeRequest{Round: e.Round, Update: e.Update}
	a.stepRoundMachine(round.UpdateOutcomeUnknown{})
}

// queryPendingOutcome asks for the outcome of an update with a hello of its own, if the agent would otherwise send none
// or leave the broker.
func (a *Agent) queryPendingOutcome() {
	if a.outcomeQuery != (wire.OutcomeRequest{}) && (a.machine.SendsNoHello() || a.machine.MayDisconnect()) {
		a.stepRoundMachine(round.UpdateOutcomeUnknown{})
	}
}

// handleOutcomeAnswer handles the coordinator's answer to an outcome request.
func (a *Agent) handleOutcomeAnswer(h wire.Header, m wire.UpdateSettled) {
	if a.outcomeQuery == (wire.OutcomeRequest{Round: h.Round, Update: m.Update}) && a.core.ObeyedPosition.Run == h.Run {
		a.settleUpdate(h.Run, h.Round, m.Fate)
	}
}

func (a *Agent) settleUpdate(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
	if a.outcomeQuery.Round == r {
		a.outcomeQuery = wire.OutcomeRequest{}
	}
	a.taskData.UpdateSettled(run, r, f)
	a.applyFateToFeedback(run, r, f)
	a.cfg.Observer.Observe(UpdateSettled{Round: r, Fate: f})
}

var settledUpdates = observe.CounterByLabel("updates_settled_total",
	"Updates of this device whose round is over, by what became of them: folded into the model, left out "+
		"of it (not_finite, risk, norm, refuse_above, rule), missed (not there when the round was closed), "+
		"abandoned with their round, or unknown.",
	"fate", observe.StringerNames(wire.Fates()))

// UpdateSettled: the coordinator has reported what became of an update of a round that is over.
type UpdateSettled struct {
	Round wire.RoundID
	Fate  wire.UpdateFate
}

// Describe implements observe.Event.
func (e UpdateSettled) Describe(d *observe.Description) {
	d.Inc(settledUpdates, e.Fate.String())
	if e.Fate != wire.FateFolded {
		d.Log(observe.Info, "update is not in the model", "round", e.Round, "fate", e.Fate)
	}
}
