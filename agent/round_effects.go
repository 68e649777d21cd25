package agent

import (
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// performRoundEffect does what the machine asks for.
func (a *Agent) performRoundEffect(e round.Effect) {
	switch e := e.(type) {
	case round.ReportEvent:
		a.cfg.Observer.Observe(e.Event)
	case round.FollowAnnouncement:
		if e.Position == a.core.Announcement.Position {
			for p := range part.Implementing[part.AnnouncementFollower](a.parts) {
				p.FollowAnnouncement(a.core.Announcement)
			}
		}
	case round.SavePosition:
		a.core.ObeyedPosition = e.Position
		if b := a.endless; b != nil && b.runIsOver(e.Position) {
			a.endBlock(b)
		}
		a.obeyedPosition.save(e)
		a.taskData.Refresh()
	case round.PrepareTask:
		a.fetchTask(e.Task)
	case round.FetchModel:
		a.core.Writes.Abandon(updateRemoval) // its files are this round's from now on
		a.fetchBaseModel(e.Base)
	case round.Train:
		a.core.Writes.Abandon(updateRemoval)
		if e.Announcement.Schema != a.taskData.Prepared().CompiledTask.Schema(e.Announcement.Kind).Hash() {
			a.stepRoundMachine(round.Trained{Run: e.Position.Run, Round: e.Position.Round,
				FailureReason: wire.DeclineUnsupported})
			break
		}
		a.startRoundTraining(e)
	case round.SubmitUpdate:
		a.submit(e)
	case round.FindUpdateFate:
		a.findUpdateFate(e)
	case round.ReleaseRound:
		a.releaseRound(e.RefusalReason)
	case round.SendHello:
		m := wire.Hello{FollowedAnnouncement: e.Announcement, UnfitReason: e.UnfitReason,
			Samples:       e.Samples,
			PendingUpdate: e.UpdateDigest, ResponseThreshold: e.LotteryThreshold, OutcomeRequest: a.outcomeQuery,
			EdgeMeasurements: a.edgeMeasurements}
		for p := range part.Implementing[part.Greeter](a.parts) {
			p.FillHello(&m)
		}
		a.presence.PublishAwaitingAnswer(a.core.Sealer.ToCoordinator(wire.TypeHello, e.Position.Run, e.Position.Round,
			m.Body()))
	case round.Disconnect:
		a.presence.PlanAbsence(e.Duration)
	case round.SendJoined:
		m := wire.InvitationAccepted{Announcement: e.Announcement}
		a.publish(a.core.Sealer.ToCoordinator(wire.TypeJoined, e.Position.Run, e.Position.Round, m.Body()))
	case round.SendDeclined:
		m := wire.InvitationDeclined{Announcement: e.Announcement, Reason: e.Reason}
		a.publish(a.core.Sealer.ToCoordinator(wire.TypeDeclined, e.Position.Run, e.Position.Round, m.Body()))
	}
}

// submit begins to send the update that is ready, or begins anew if it is being sent. One that was not to be sent when
// it was made is saved before.
func (a *Agent) submit(e round.SubmitUpdate) {
	u := a.currentUpdate
	if u == nil || u.Payload.Hash != e.Update {
		return // released meanwhile
	}
	if u.saving {
		return // it is sent then
	}
	if !u.saved && !u.cheapToRecompute {
		u.saving = true
		a.core.Do(a.core.DataJobs, func() func() {
			a.save(u, func() bool { return a.currentUpdate != u })
			return func() {
				u.saving = false
				if a.currentUpdate == u {
					a.send(int(e.FirstCreditChunks))
				}
			}
		})
		return
	}
	a.send(int(e.FirstCreditChunks))
}

// send sends the update that is ready, and as many of its chunks as need no credit.
func (a *Agent) send(ahead int) {
	if a.sender != nil && a.updateBeingSent == a.currentUpdate {
		a.stepSender(transfer.CoordinatorRestarted{})
		return
	}
	a.currentUpdate.possiblySent = true
	a.updateBeingSent = a.currentUpdate
	a.sender = transfer.NewSender(a.currentUpdate.Payload, a.currentUpdate.payload, 0, ahead, a.cfg.Rate, a.cfg.Rand)
	if !a.core.Connected {
		a.stepSender(transfer.Disconnected{})
	}
	a.stepSender(transfer.Start{})
}

// releaseRound ends all work of a round.
func (a *Agent) releaseRound(refused wire.UpdateRefusalReason) {
	a.cancelTraining()
	a.keepReleasedResidual(a.currentUpdate, refused)
	a.stepSender(transfer.Cancel{})
	a.sender, a.updateBeingSent, a.currentUpdate, a.base, a.baseModelHash = nil, nil, nil, nil, wire.Digest{}
	model, fetching := a.fetch.Underway(fetch.Model)
	kept := fetching && (a.predict.NeedsModel(model) || a.evaluation.NeedsModel(model))
	if !kept {
		a.fetch.Cancel(fetch.Model)
	}
	a.core.Writes.Abandon(updateWrite)
	// if it stays, the next start removes it
	next := a.updateRequestCount + 1
	clear := func() {
		_ = a.core.Writes.Run(state.Write{Purpose: updateRemoval,
			Do: func() error { return a.updateStore.clear(&a.cfg, next, !kept) }})
	}
	if a.feedbackUnsaved() { // the update has it
		a.updateStore.discardEarlier(next)
		a.errorFeedback.onSaved = func() {
			if a.updateRequestCount < next { // else the file is a later one's
				clear()
			}
		}
		return
	}
	clear()
}
