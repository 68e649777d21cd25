package agentd

import (
	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/round"
)

// StatusObserver keeps the status line and the readiness of an agent's process.
type StatusObserver struct {
	Line  *daemon.StatusLine
	Ready *daemon.Readiness
}

// Observe implements agent.Observer.
func (w StatusObserver) Observe(fact agent.Fact) {
	switch f := fact.(type) {
	case agent.BrokerLinkChanged:
		if f.ReconnectAt.IsZero() {
			w.Line.LinkChanged(f.Up, f.Err)
		} else {
			w.Line.SetPaused(f.ReconnectAt)
		}
	case agent.SubscriptionsRefused:
		w.Line.SetRefusedFilters(len(f.Filters) + len(f.NeighborBrokerFilters))
		w.Ready.SetRefusedFilters(f.Filters)
	case agent.StorageFailing:
		w.Ready.SetStorageFailing(f.Operation, f.Err)
	case agent.StorageMended:
		w.Ready.ClearStorageFailing()
	case agent.AnnouncementMissing:
		w.noteMissingAnnouncement(f)
	case agent.AnnouncementsStale, agent.BlockBegan, agent.BootRaised, agent.BrokerTested, agent.BudgetUsed,
		agent.CertificateEnding, agent.CertificateUsed, agent.ClockBehind, agent.CloneSeen, agent.DataCollected,
		agent.DataLoaded, agent.DeviceRulesChecked, agent.Evaluated, agent.ErrorFeedbackKept, agent.GroupKeyAwaited,
		agent.GroupKeyReceived,
		agent.MessageDropped,
		agent.ModelFetched, agent.ModelHookFailed, agent.ModelInUse, agent.ModelJudged, agent.NeighborsFound,
		agent.PersonalModelReset,
		agent.Predicted, agent.Rekeyed, agent.RenewalRefused, agent.RootDocumentAdopted, agent.StateLost, agent.Trained,
		agent.ExternalTrainerEnded, agent.ExternalTrainerStarted,
		agent.TrainingFailed, agent.TrainingLockAwaited, agent.MessagesRejected, agent.UpdateSettled: // changes neither
	}
}

// ObserveRound implements agent.Observer.
func (w StatusObserver) ObserveRound(fact round.AgentFact) {
	switch f := fact.(type) {
	case round.WorkStarted:
		w.Line.SetActivity("at work in round %d", f.Round)
	case round.WorkEnded:
		w.Line.SetActivity("round %d %s", f.Round, f.Result)
	case round.AnnouncementIgnored, round.AnnouncementObeyed, round.UplinkBudgetTooSmall, round.EdgeLost,
		round.MessageUnsupported,
		round.TaskPrepared: // changes neither
	}
}

// noteMissingAnnouncement notes why there is no announcement. An agent that waits for its coordinator's first start is
// ready.
func (w StatusObserver) noteMissingAnnouncement(f agent.AnnouncementMissing) {
	if f.Reason == "" {
		w.Line.SetActivity("")
		w.Ready.SetMissingAnnouncement("")
		return
	}
	w.Line.SetActivity("no task: %s", f.Reason)
	if f.Reason == agent.MissingNotRetained {
		w.Ready.SetMissingAnnouncement("")
		return
	}
	w.Ready.SetMissingAnnouncement(f.Advice())
}
