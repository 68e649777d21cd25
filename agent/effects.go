package agent

import (
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// perform does what the machine asks for.
func (a *Agent) perform(e round.Effect) {
	switch e := e.(type) {
	case round.Report[round.AgentFact]:
		a.cfg.Observer.ObserveRound(e.Fact)
	case round.Obey:
		a.obey(e)
	case round.Prepare:
		a.wanted, a.misfit = e.Task.Hash, nil
		a.startPull(e.Task, purposeTask, 0)
	case round.FetchModel:
		a.unwanted(removeUpdate) // its files are this round's from now on
		a.fetching = e.Base.Hash
		a.startPull(e.Base, purposeModel, 0)
	case round.Train:
		a.unwanted(removeUpdate)
		if e.Announcement.Schema != a.prepared.problem.Schema(e.Announcement.Kind).Hash() {
			a.step(round.Trained{Run: e.Order.Run, Round: e.Order.Round, Failed: wire.DeclineUnsupported})
			break
		}
		a.train(e)
	case round.Submit:
		a.submit(e)
	case round.Release:
		a.release()
	case round.SayHello:
		m := wire.Hello{Nonce: a.signer.nonce, Announcement: e.Announcement, Unfit: e.Unfit, Samples: e.Samples,
			Update:  e.Update,
			PeerKey: a.mesh.peerKey(), Location: a.mesh.place(), Neighbors: a.mesh.found}
		a.publish(a.signer.status(wire.TypeHello, e.Order, m.Body()))
	case round.SayJoined:
		m := wire.Joined{Announcement: e.Announcement}
		a.publish(a.signer.status(wire.TypeJoined, e.Order, m.Body()))
	case round.SayDeclined:
		m := wire.Declined{Announcement: e.Announcement, Reason: e.Reason}
		a.publish(a.signer.status(wire.TypeDeclined, e.Order, m.Body()))
	}
}

// submit begins to send the update that is ready, or begins anew if it is being sent.
func (a *Agent) submit(e round.Submit) {
	if a.ready == nil || a.ready.Payload.Hash != e.Update {
		return // released meanwhile
	}
	if a.sender != nil && a.sending == a.ready {
		a.stepSender(transfer.Forgotten{})
		return
	}
	a.sending = a.ready
	a.sender = transfer.NewSender(a.ready.Payload, a.ready.payload, 0, int(e.Ahead), a.cfg.Rate, a.cfg.Rand)
	if !a.up {
		a.stepSender(transfer.Disconnected{})
	}
	a.stepSender(transfer.Start{})
}

// release ends all work of a round.
func (a *Agent) release() {
	a.cease()
	a.stepSender(transfer.Cancel{})
	a.sender, a.sending, a.ready, a.base, a.fetching = nil, nil, nil, nil, wire.Digest{}
	a.endPulls(purposeModel)
	a.unwanted(saveTheUpdate)
	// if it stays, the next start removes it
	_ = a.persist(removeUpdate, func() error { return removeRound(&a.cfg) }, nil)
}
