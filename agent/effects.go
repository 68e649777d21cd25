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
	case round.ReportFact[round.AgentFact]:
		a.cfg.Observer.ObserveRound(e.Fact)
		if f, ok := e.Fact.(round.AnnouncementObeyed); ok && f.Order == a.lastAnnouncement.Order {
			a.offered(a.lastAnnouncement)
			a.askedToEvaluate(a.lastAnnouncement)
		}
	case round.SavePosition:
		a.obey(e)
	case round.PrepareTask:
		a.wantedTaskHash, a.misfit = e.Task.Hash, nil
		a.startPull(e.Task, purposeTask, 0)
	case round.FetchModel:
		a.unwanted(updateRemoval) // its files are this round's from now on
		a.fetch(e.Base)
	case round.Train:
		a.unwanted(updateRemoval)
		if e.Announcement.Schema != a.prepared.problem.Schema(e.Announcement.Kind).Hash() {
			a.step(round.Trained{Run: e.Order.Run, Round: e.Order.Round, Failed: wire.DeclineUnsupported})
			break
		}
		a.train(e)
	case round.SubmitUpdate:
		a.submit(e)
	case round.FindUpdateFate:
		a.read(e)
	case round.ReleaseRound:
		a.release(e.Refused)
	case round.SayHello:
		m := wire.Hello{Nonce: a.signer.nonce, Announcement: e.Announcement, Unfit: e.Unfit, Samples: e.Samples,
			PendingUpdate: e.Update, ResponseThreshold: e.LotteryThreshold, OutcomeRequest: a.outcomeQuery,
			MissingGroupKeyID: a.groupKeyForHello(), Residuals: a.residualsForHello(),
			MissingParts: a.missingParts, Evaluation: a.evaluationForHello(),
			NewRows: a.newRowsForHello(), PeerKey: a.mesh.peerKey(), Location: a.mesh.place(), Neighbors: a.mesh.found,
			SupportsClipping: a.mesh.private != nil, Seen: a.seen}
		a.missingParts, a.newRows.lastReported = wire.MissingParts{}, m.NewRows
		if a.misfit != nil && (e.Unfit == wire.DeclineBadData || e.Unfit == wire.DeclineTooFewRows) {
			m.Misfit = a.misfit.told
		}
		a.publishExpectingAnswer(a.signer.status(wire.TypeHello, e.Order, m.Body()))
	case round.Disconnect:
		a.away.plannedAbsence = e.For
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
func (a *Agent) submit(e round.SubmitUpdate) {
	u := a.ready
	if u == nil || u.Payload.Hash != e.Update {
		return // released meanwhile
	}
	if u.saving {
		return // it is sent then
	}
	if !u.saved && !u.cheapToRecompute {
		u.saving = true
		a.start(func() func() {
			a.save(u, func() bool { return a.ready != u })
			return func() {
				u.saving = false
				if a.ready == u {
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
	if a.sender != nil && a.sending == a.ready {
		a.stepSender(transfer.CoordinatorRestarted{})
		return
	}
	a.ready.possiblySent = true
	a.sending = a.ready
	a.sender = transfer.NewSender(a.ready.Payload, a.ready.payload, 0, ahead, a.cfg.Rate, a.cfg.Rand)
	if !a.up {
		a.stepSender(transfer.Disconnected{})
	}
	a.stepSender(transfer.Start{})
}

// release ends all work of a round.
func (a *Agent) release(refused wire.RefuseReason) {
	a.cancelTraining()
	a.leaveFeedback(a.ready, refused)
	a.stepSender(transfer.Cancel{})
	a.sender, a.sending, a.ready, a.base, a.baseModelHash = nil, nil, nil, nil, wire.Digest{}
	kept := slices.ContainsFunc(slices.Collect(maps.Values(a.pulls)), a.neededBeyondTraining)
	if !kept {
		a.endPulls(purposeModel)
	}
	a.unwanted(updateWrite)
	// if it stays, the next start removes it
	next := a.requestedUpdates + 1
	clear := func() {
		_ = a.writeOrRetry(updateRemoval, func() error { return a.updateStore.clear(&a.cfg, next, !kept) }, nil)
	}
	if a.feedbackUnsaved() { // the update has it
		a.updateStore.discardEarlier(next)
		a.errorFeedback.saved = func() {
			if a.requestedUpdates < next { // else the file is a later one's
				clear()
			}
		}
		return
	}
	clear()
}
