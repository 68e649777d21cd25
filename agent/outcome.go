package agent

import (
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// read tells what became of an update whose round is over. It is in the announcement, if that is about the round and
// holds the outcome; else the next hello asks for it.
func (a *Agent) read(e round.Read) {
	if e.Folded == e.Round && e.Outcome.Inline != nil {
		if o, err := wire.DecodeOutcome(e.Outcome.Inline); err == nil && o.Round == e.Round {
			a.settled(e.Order.Run, e.Round, o.Of(wire.TagOf(e.Order.Run, e.Round, a.cfg.ID, e.Update)))
			return
		}
	}
	a.asks = wire.Asked{Round: e.Round, Update: e.Update}
	a.step(round.Unread{})
}

// answered takes the coordinator's answer to that.
func (a *Agent) answered(h wire.Header, m wire.UpdateSettled) {
	if a.asks == (wire.Asked{Round: h.Round, Update: m.Update}) && a.order.Run == h.Run {
		a.settled(h.Run, h.Round, m.Fate)
	}
}

func (a *Agent) settled(run wire.RunID, r wire.RoundID, f wire.Fate) {
	if a.asks.Round == r {
		a.asks = wire.Asked{}
	}
	a.newRows.settle(run, r, f)
	a.settleFeedback(run, r, f)
	a.cfg.Observer.Observe(UpdateSettled{Round: r, Fate: f})
}
