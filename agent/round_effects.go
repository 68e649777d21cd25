package agent

import (
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// performRoundEffect performs one effect that the round state machine has returned.
func (a *Agent) performRoundEffect(e agentround.Effect) {
	switch e := e.(type) {
	case agentround.ReportEvent:
		a.cfg.Observer.Observe(e.Event)
	case agentround.FollowAnnouncement:
		if e.Position == a.core.LastAnnouncement.Position {
			for p := range part.PartsImplementing[part.AnnouncementFollower](a.parts) {
				p.FollowAnnouncement(a.core.LastAnnouncement)
			}
		}
	case agentround.SaveAnnouncementPosition:
		a.core.ObeyedPosition = e.Position
		a.training.EndBlockIfRunOver()
		a.obeyedAnnouncementStore.savePosition(e)
		a.taskData.RefreshRows()
	case agentround.PrepareTask:
		a.fetchTask(e.Task)
	case agentround.FetchModel:
		a.upload.AbandonUpdateRemoval()
		a.obtainRoundBaseModel(e.BaseModel)
	case agentround.StartTraining:
		a.train(e)
	case agentround.SubmitUpdate:
		a.upload.SubmitUpdate(e)
	case agentround.FindUpdateFate:
		a.upload.FindUpdateFate(e)
	case agentround.EndRoundWork:
		a.endRoundWork(e.RefusalReason)
	case agentround.SendHello:
		m := wire.Hello{FollowedAnnouncement: e.AnnouncementDigest, UnfitReason: e.UnfitReason, Samples: e.RowCount,
			PendingUpdate: e.UpdateDigest, AnswerProbability: e.LotteryThreshold}
		for p := range part.PartsImplementing[part.HelloFiller](a.parts) {
			p.FillHello(&m)
		}
		a.presence.PublishAwaitingAnswer(a.core.Sealer.MessageToCoordinator(wire.TypeHello, e.Position.Run,
			e.Position.Round,
			m.Body()))
	case agentround.AllowDisconnect:
		a.presence.PlanAbsence(e.Duration)
	case agentround.SendJoined:
		m := wire.InvitationAccepted{Announcement: e.AnnouncementDigest}
		a.publish(a.core.Sealer.MessageToCoordinator(wire.TypeInvitationAccepted, e.Position.Run, e.Position.Round,
			m.Body()))
	case agentround.SendDeclined:
		m := wire.InvitationDeclined{Announcement: e.AnnouncementDigest, Reason: e.Reason}
		a.publish(a.core.Sealer.MessageToCoordinator(wire.TypeInvitationDeclined, e.Position.Run, e.Position.Round,
			m.Body()))
	}
}

// train starts the computation of this agent's update for a round. It reports a failure if the model's tensors differ
// from the tensors in the announced schema.
func (a *Agent) train(e agentround.StartTraining) {
	p := a.taskData.LastPreparedTask().LimitTrainingRows(e.MaxRows)
	if e.Announcement.UpdateSchema != p.CompiledTask.UpdateSchema(e.Announcement.Kind).Hash() {
		a.handleRoundEvent(agentround.TrainingEnded{Run: e.Position.Run, Round: e.Position.Round,
			FailureReason: wire.DeclineUnsupported})
		return
	}
	if e.Announcement.Kind == wire.KindTraining {
		a.cfg.Observer.Observe(BaseModelFetched{Version: e.Announcement.BaseModelVersion,
			Bytes: int(e.Announcement.BaseModel.Length)})
		a.taskData.RecordTrainingStart(e.Position.Run, e.Position.Round, p)
	}
	share := 1.0
	for limiter := range part.PartsImplementing[part.StepLimiter](a.parts) {
		share = min(share, limiter.AllowedStepShare())
	}
	a.training.TrainForRound(e, p, a.roundBaseModel.parameters, share)
}

// endRoundWork ends all work of a round.
func (a *Agent) endRoundWork(refused wire.UpdateRefusalReason) {
	a.training.CancelRoundTraining()
	a.roundBaseModel = roundBaseModel{}
	model, fetching := a.fetch.BlobBeingFetched(fetch.Model)
	kept := fetching && (a.predict.NeedsModel(model) || a.evaluation.NeedsModel(model))
	if !kept {
		a.fetch.Cancel(fetch.Model)
	}
	a.upload.ReleaseUpdate(refused, func() error {
		if kept {
			return nil
		}
		return a.core.StateFolder.RemoveFile(fetch.Model.FileName())
	})
}
