package agentd

import (
	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/round"
)

// Watch keeps the status line and the readiness of an agent's process.
type Watch struct {
	Line  *daemon.Status
	Ready *daemon.Readiness
}

// Observe implements agent.Observer.
func (w Watch) Observe(fact agent.Fact) {
	switch f := fact.(type) {
	case agent.LinkChanged:
		if f.Back.IsZero() {
			w.Line.LinkChanged(f.Up, f.Err)
		} else {
			w.Line.Leaves(f.Back)
		}
	case agent.SubscriptionsRefused:
		w.Line.Refuses(len(f.Filters) + len(f.Site))
		w.Ready.Refused(f.Filters)
	case agent.StorageFailing:
		w.Ready.Fails(f.What, f.Err)
	case agent.StorageMended:
		w.Ready.Mended()
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
		agent.TrainingFailed, agent.TurnAwaited, agent.Rejected, agent.UpdateSettled: // changes neither
	}
}

// ObserveRound implements agent.Observer.
func (w Watch) ObserveRound(fact round.AgentFact) {
	switch f := fact.(type) {
	case round.WorkStarted:
		w.Line.Set("at work in round %d", f.Round)
	case round.WorkEnded:
		w.Line.Set("round %d %s", f.Round, f.Result)
	case round.AnnouncementIgnored, round.AnnouncementObeyed, round.BudgetShort, round.EdgeLost, round.NotUnderstood,
		round.TaskPrepared: // changes neither
	}
}

// missing notes why there is no announcement. An agent that waits for its coordinator's first start is ready.
func (w Watch) missing(f agent.AnnouncementMissing) {
	if f.Reason == "" {
		w.Line.Set("")
		w.Ready.Lacks("")
		return
	}
	w.Line.Set("no task: %s", f.Reason)
	if f.Reason == agent.MissingNone {
		w.Ready.Lacks("")
		return
	}
	w.Ready.Lacks(f.Advice())
}
