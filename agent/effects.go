package agent

import (
	"time"

	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// perform does what the machine asks for. It reports false if the agent stops
// before that is on disk.
func (a *Agent) perform(e round.Effect) bool {
	switch e := e.(type) {
	case round.Report:
		a.cfg.Observer.Observe(e.Fact)
	case round.Obey:
		a.order = e.Order
		if b := a.endless; b != nil && b.past(a.order) {
			a.endBlock(b)
		}
		return a.untilDone("save the announcement's place", func() error { return saveObeyed(a.cfg.Dir, e.Order, e.Digest) })
	case round.Prepare:
		a.wanted, a.misfit = e.Task.Hash, nil
		a.startPull(e.Task, purposeTask, 0)
	case round.FetchModel:
		a.fetching = e.Base.Hash
		a.startPull(e.Base, purposeModel, 0)
	case round.Train:
		if e.Announcement.Schema != a.prepared.problem.Schema(e.Announcement.Kind).Hash() {
			a.step(round.Trained{Run: e.Order.Run, Round: e.Order.Round, Failed: wire.DeclineUnsupported})
			break
		}
		a.train(e)
	case round.Submit:
		a.submit(e)
	case round.Release:
		return a.release()
	case round.SayHello:
		m := wire.Hello{Nonce: a.voice.nonce, Announcement: e.Announcement, Unfit: e.Unfit, Samples: e.Samples, Update: e.Update,
			PeerKey: a.mesh.peerKey(), Location: a.mesh.place(), Neighbors: a.mesh.found}
		a.publish(a.voice.status(wire.TypeHello, e.Order, m.Body()))
	case round.SayJoined:
		m := wire.Joined{Announcement: e.Announcement}
		a.publish(a.voice.status(wire.TypeJoined, e.Order, m.Body()))
	case round.SayDeclined:
		m := wire.Declined{Announcement: e.Announcement, Reason: e.Reason}
		a.publish(a.voice.status(wire.TypeDeclined, e.Order, m.Body()))
	}
	return true
}

// untilDone repeats a write that must be on disk before anything else happens.
// A full disk so stops the agent, not for ever, and nothing is forgotten. It
// reports false if the agent stops before it is done.
func (a *Agent) untilDone(what string, write func() error) bool {
	for {
		err := write()
		if err == nil {
			return true
		}
		a.cfg.Logger.Error("cannot "+what+"; the agent waits and tries again", "err", err)
		again := time.After(5 * time.Second)
		for waiting := true; waiting; {
			select {
			case <-a.ctx.Done():
				return false
			case <-a.pings: // who waits is alive: a restart would not make room
			case <-again:
				waiting = false
			}
		}
	}
}

// suspend stops the owner, as a device that sleeps.
func (a *Agent) suspend(m Moment, deadline time.Time) {
	if a.cfg.Suspend == nil {
		return
	}
	if d := a.cfg.Suspend(m, deadline); d > 0 {
		select {
		case <-a.ctx.Done():
		case <-time.After(d):
		}
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
	a.suspend(BeforeSubmitting, a.ready.deadline)
	a.sending = a.ready
	a.sender = transfer.NewSender(a.ready.Payload, a.ready.payload, 0, a.cfg.Rate, a.cfg.Rand)
	if !a.up {
		a.stepSender(transfer.Disconnected{})
	}
	a.stepSender(transfer.Start{})
}

// release ends all work of a round.
func (a *Agent) release() bool {
	a.cease()
	a.stepSender(transfer.Cancel{})
	a.sender, a.sending, a.ready, a.base, a.fetching = nil, nil, nil, nil, wire.Digest{}
	a.endPulls(purposeModel)
	return a.untilDone("remove the old update", func() error { return removeRound(a.cfg.Dir) })
}
