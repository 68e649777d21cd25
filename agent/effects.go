package agent

import (
	"maps"
	"slices"

	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// perform does what the machine asks for.
func (a *Agent) perform(e round.Effect) {
	switch e := e.(type) {
	case round.Report[round.AgentFact]:
		a.cfg.Observer.ObserveRound(e.Fact)
		if f, ok := e.Fact.(round.AnnouncementObeyed); ok && f.Order == a.came.Order {
			a.offered(a.came)
			a.askedToEvaluate(a.came)
		}
	case round.Obey:
		a.obey(e)
	case round.Prepare:
		a.wanted, a.misfit = e.Task.Hash, nil
		a.startPull(e.Task, purposeTask, 0)
	case round.FetchModel:
		a.unwanted(removeUpdate) // its files are this round's from now on
		a.fetch(e.Base)
	case round.Train:
		a.unwanted(removeUpdate)
		if e.Announcement.Schema != a.prepared.problem.Schema(e.Announcement.Kind).Hash() {
			a.step(round.Trained{Run: e.Order.Run, Round: e.Order.Round, Failed: wire.DeclineUnsupported})
			break
		}
		a.train(e)
	case round.Submit:
		a.submit(e)
	case round.Read:
		a.read(e)
	case round.Release:
		a.release(e.Refused)
	case round.SayHello:
		m := wire.Hello{Nonce: a.signer.nonce, Announcement: e.Announcement, Unfit: e.Unfit, Samples: e.Samples,
			Update: e.Update, Respond: e.Respond, Asks: a.asks, WantsKey: a.asksForKey(), Residuals: a.residuals(),
			MissingParts: a.lacks, Evaluation: a.saysEvaluation(),
			NewRows: a.tellsNewRows(), PeerKey: a.mesh.peerKey(), Location: a.mesh.place(), Neighbors: a.mesh.found,
			Clips: a.mesh.private != nil, Seen: a.seen}
		a.lacks, a.newRows.told = wire.MissingParts{}, m.NewRows
		if a.misfit != nil && (e.Unfit == wire.DeclineBadData || e.Unfit == wire.DeclineTooFewRows) {
			m.Misfit = a.misfit.told
		}
		a.ask(a.signer.status(wire.TypeHello, e.Order, m.Body()))
	case round.Leave:
		a.away.wait = e.For
	case round.SayJoined:
		m := wire.Joined{Announcement: e.Announcement}
		a.publish(a.signer.status(wire.TypeJoined, e.Order, m.Body()))
	case round.SayDeclined:
		m := wire.Declined{Announcement: e.Announcement, Reason: e.Reason}
		a.publish(a.signer.status(wire.TypeDeclined, e.Order, m.Body()))
	}
}

// submit begins to send the update that is ready, or begins anew if it is being sent. One that was not to be sent when
// it was made is saved before.
func (a *Agent) submit(e round.Submit) {
	u := a.ready
	if u == nil || u.Payload.Hash != e.Update {
		return // released meanwhile
	}
	if u.saving {
		return // it is sent then
	}
	if !u.saved && !u.cheap {
		u.saving = true
		a.start(func() func() {
			a.save(u, func() bool { return a.ready != u })
			return func() {
				u.saving = false
				if a.ready == u {
					a.send(int(e.Ahead))
				}
			}
		})
		return
	}
	a.send(int(e.Ahead))
}

// send sends the update that is ready, and as many of its chunks as need no credit.
func (a *Agent) send(ahead int) {
	if a.sender != nil && a.sending == a.ready {
		a.stepSender(transfer.Forgotten{})
		return
	}
	a.ready.offered = true
	a.sending = a.ready
	a.sender = transfer.NewSender(a.ready.Payload, a.ready.payload, 0, ahead, a.cfg.Rate, a.cfg.Rand)
	if !a.up {
		a.stepSender(transfer.Disconnected{})
	}
	a.stepSender(transfer.Start{})
}

// release ends all work of a round.
func (a *Agent) release(refused wire.RefuseReason) {
	a.cease()
	a.leaveFeedback(a.ready, refused)
	a.stepSender(transfer.Cancel{})
	a.sender, a.sending, a.ready, a.base, a.fetching = nil, nil, nil, nil, wire.Digest{}
	kept := slices.ContainsFunc(slices.Collect(maps.Values(a.pulls)), a.keeping)
	if !kept {
		a.endPulls(purposeModel)
	}
	a.unwanted(saveTheUpdate)
	// if it stays, the next start removes it
	next := a.turns + 1
	clear := func() { _ = a.persist(removeUpdate, func() error { return a.kept.clear(&a.cfg, next, !kept) }, nil) }
	if a.feedbackUnsaved() { // the update has it
		a.kept.pass(next)
		a.unsent.saved = func() {
			if a.turns < next { // else the file is a later one's
				clear()
			}
		}
		return
	}
	clear()
}
