package daemon

import (
	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/round"
)

// AgentWatch keeps the status line and the readiness of an agent's process.
type AgentWatch struct {
	Line  *Status
	Ready *Readiness
}

// Observe implements agent.Observer.
func (w AgentWatch) Observe(fact agent.Fact) {
	switch f := fact.(type) {
	case agent.LinkChanged:
		if f.Back.IsZero() {
			w.Line.linkChanged(f.Up, f.Err)
		} else {
			w.Line.leaves(f.Back)
		}
	case agent.SubscriptionsRefused:
		w.Line.refuses(len(f.Filters) + len(f.Site))
		w.Ready.refused.Store(&f.Filters)
	case agent.StorageFailing:
		w.Ready.fails(f.What, f.Err)
	case agent.StorageMended:
		w.Ready.failing.Store(nil)
	case agent.AnnouncementMissing:
		w.missing(f)
	case agent.AnnouncementsStale, agent.BlockBegan, agent.BootRaised, agent.BrokerTested, agent.BudgetUsed,
		agent.CertificateEnding, agent.CertificateUsed, agent.ClockBehind, agent.CloneSeen, agent.DataCollected,
		agent.DataLoaded, agent.DeviceJudged, agent.Evaluated, agent.FeedbackKept, agent.KeyAwaited, agent.KeyCame,
		agent.MessageDropped,
		agent.ModelFetched, agent.ModelHookFailed, agent.ModelInUse, agent.ModelJudged, agent.NeighborsFound,
		agent.PersonalBegun,
		agent.Predicted, agent.Rekeyed, agent.RenewalRefused, agent.RootTaken, agent.StateLost, agent.Trained,
		agent.TrainerEnded, agent.TrainerStarted,
		agent.TrainingFailed, agent.TurnAwaited, agent.Unheard, agent.UpdateSettled: // changes neither
	}
}

// ObserveRound implements agent.Observer.
func (w AgentWatch) ObserveRound(fact round.AgentFact) {
	switch f := fact.(type) {
	case round.WorkStarted:
		w.Line.set("at work in round %d", f.Round)
	case round.WorkEnded:
		w.Line.set("round %d %s", f.Round, f.Result)
	case round.AnnouncementIgnored, round.AnnouncementObeyed, round.BudgetShort, round.EdgeLost, round.NotUnderstood,
		round.TaskPrepared: // changes neither
	}
}

// missing notes why there is no announcement. An agent that waits for its coordinator's first start is ready.
func (w AgentWatch) missing(f agent.AnnouncementMissing) {
	if f.Reason == "" {
		w.Line.set("")
		w.Ready.missing.Store(nil)
		return
	}
	w.Line.set("no task: %s", f.Reason)
	if f.Reason == agent.MissingNone {
		w.Ready.missing.Store(nil)
		return
	}
	text := f.Advice()
	w.Ready.missing.Store(&text)
}

// CoordinatorWatch keeps the status line and the readiness of the coordinator's process.
type CoordinatorWatch struct {
	Line  *Status
	Ready *Readiness
}

// Observe implements coordinator.Observer.
func (w CoordinatorWatch) Observe(fact coordinator.Fact) {
	switch f := fact.(type) {
	case coordinator.LinkChanged:
		w.Line.linkChanged(f.Up, f.Err)
	case coordinator.SubscriptionsRefused:
		w.Line.refuses(len(f.Filters))
		w.Ready.refused.Store(&f.Filters)
	case coordinator.StorageFailing:
		w.Ready.fails(f.What, f.Err)
	case coordinator.StorageMended:
		w.Ready.failing.Store(nil)
	case coordinator.AgentHeard, coordinator.AgentReported, coordinator.AgentsAhead, coordinator.AgentsListed,
		coordinator.AgentUnheard, coordinator.Began,
		coordinator.BlobChecked, coordinator.BrokerTested, coordinator.CloneSeen,
		coordinator.ForeignAnnouncement, coordinator.ForeignRetained, coordinator.MeshMade, coordinator.MessageDropped,
		coordinator.ModelEvaluated, coordinator.ModelReady, coordinator.ModelRejected, coordinator.ModelsAhead,
		coordinator.SealingChanged, coordinator.StateMended,
		coordinator.StatisticsReady, coordinator.TransfersChanged, coordinator.UpdateLeftOut,
		coordinator.UpdateLarge, coordinator.UpdatesClipped, coordinator.UpdatesPassedOver: // changes neither
	}
}

// ObserveRound implements coordinator.Observer.
func (w CoordinatorWatch) ObserveRound(fact round.CoordinatorFact) {
	switch f := fact.(type) {
	case round.GatheringExtended:
		w.Line.set("waiting for agents: %d of %d are present", f.Agents, f.Minimum)
	case round.RoundOpened:
		w.Line.set("round %d is open for %d of %d agents", f.Round, len(f.Participants), f.Agents)
	case round.RoundClosed:
		w.Line.set("round %d closed with %d of %d", f.Round, f.Accepted, f.Selected)
	case round.RoundAbandoned:
		w.Line.set("round %d abandoned with %d of %d", f.Round, f.Accepted, f.Selected)
	case round.RoundWaits:
		if f.Reason == round.WaitWindow {
			w.Line.set("rounds rest until %s", f.Until.Format("Mon 15:04"))
		} else {
			w.Line.set("%d of %d agents have %d new rows", f.Fresh, f.Agents, f.Rows)
		}
	case round.RunFinished:
		w.Line.set("the run is finished (%s), with version %d", f.Reason, f.Version)
	case round.AgentCounted, round.AgentDeclined, round.AgentJoined, round.AgentLeft, round.AgentReadmitted,
		round.AgentSidelined, round.AgentUnfit, round.EdgeEnded, round.EdgesJudged, round.PhaseEntered,
		round.RolloutBegan, round.RolloutEnded, round.SamplesLarge, round.StopJudged, round.UpdateAccepted,
		round.UpdateRefused, round.UploaderReplaced: // changes neither
	}
}
