package agent

import (
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// performRoundEffect performs an effect of the round machine.
func (a *Agent) performRoundEffect(e agentround.Effect) {
	switch e := e.(type) {
	case agentround.ReportEvent:
		a.cfg.Observer.Observe(e.Event)
	case agentround.FollowAnnouncement:
		if e.Position == a.core.Announcement.Position {
			for p := range part.Implementing[part.AnnouncementFollower](a.parts) {
				p.FollowAnnouncement(a.core.Announcement)
			}
		}
	case agentround.SavePosition:
		a.core.ObeyedPosition = e.Position
		a.training.FollowPosition()
		a.obeyedPosition.save(e)
		a.taskData.Refresh()
	case agentround.PrepareTask:
		a.fetchTask(e.Task)
	case agentround.FetchModel:
		a.upload.KeepFiles()
		a.fetchBaseModel(e.Base)
	case agentround.Train:
		a.train(e)
	case agentround.SubmitUpdate:
		a.upload.Submit(e)
	case agentround.FindUpdateFate:
		a.upload.FindFate(e)
	case agentround.ReleaseRound:
		a.releaseRound(e.RefusalReason)
	case agentround.SendHello:
		m := wire.Hello{FollowedAnnouncement: e.Announcement, UnfitReason: e.UnfitReason, Samples: e.Samples,
			PendingUpdate: e.UpdateDigest, ResponseThreshold: e.LotteryThreshold}
		for p := range part.Implementing[part.Greeter](a.parts) {
			p.FillHello(&m)
		}
		a.presence.PublishAwaitingAnswer(a.core.Sealer.ToCoordinator(wire.TypeHello, e.Position.Run, e.Position.Round,
			m.Body()))
	case agentround.Disconnect:
		a.presence.PlanAbsence(e.Duration)
	case agentround.SendJoined:
		m := wire.InvitationAccepted{Announcement: e.Announcement}
		a.publish(a.core.Sealer.ToCoordinator(wire.TypeJoined, e.Position.Run, e.Position.Round, m.Body()))
	case agentround.SendDeclined:
		m := wire.InvitationDeclined{Announcement: e.Announcement, Reason: e.Reason}
		a.publish(a.core.Sealer.ToCoordinator(wire.TypeDeclined, e.Position.Run, e.Position.Round, m.Body()))
	}
}

// train computes the update of a round, or fails if the model's schema is not the announced one.
func (a *Agent) train(e agentround.Train) {
	p := a.taskData.Prepared().LimitTrainingRows(e.Samples)
	if e.Announcement.Schema != p.CompiledTask.Schema(e.Announcement.Kind).Hash() {
		a.stepRoundMachine(agentround.Trained{Run: e.Position.Run, Round: e.Position.Round,
			FailureReason: wire.DeclineUnsupported})
		return
	}
	if e.Announcement.Kind == wire.KindTraining {
		a.cfg.Observer.Observe(ModelFetched{Version: e.Announcement.BaseModelVersion,
			Bytes: int(e.Announcement.BaseModel.Length)})
		a.taskData.TrainingStarted(e.Position.Run, e.Position.Round, p)
	}
	share := 1.0
	for limiter := range part.Implementing[part.StepLimiter](a.parts) {
		share = min(share, limiter.StepShare())
	}
	a.training.Train(e, p, a.base.parameters, share)
}

// releaseRound ends all work of a round.
func (a *Agent) releaseRound(refused wire.UpdateRefusalReason) {
	a.training.Cancel()
	a.base = roundModel{}
	model, fetching := a.fetch.Underway(fetch.Model)
	kept := fetching && (a.predict.NeedsModel(model) || a.evaluation.NeedsModel(model))
	if !kept {
		a.fetch.Cancel(fetch.Model)
	}
	a.upload.Release(refused, func() error {
		if kept {
			return nil
		}
		return a.core.State.Remove(fetch.Model.FileName())
	})
}
