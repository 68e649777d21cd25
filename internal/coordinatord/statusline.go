package coordinatord

import (
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/round"
)

// StatusObserver keeps the status line and the readiness of the coordinator's process.
type StatusObserver struct {
	Line  *daemon.StatusLine
	Ready *daemon.Readiness
}

// Observe implements coordinator.Observer.
func (w StatusObserver) Observe(fact coordinator.Fact) {
	switch f := fact.(type) {
	case coordinator.LinkChanged:
		w.Line.LinkChanged(f.Up, f.Err)
	case coordinator.SubscriptionsRefused:
		w.Line.SetRefusedFilters(len(f.Filters))
		w.Ready.SetRefusedFilters(f.Filters)
	case coordinator.StorageFailing:
		w.Ready.SetStorageFailing(f.Operation, f.Err)
	case coordinator.StorageRecovered:
		w.Ready.ClearStorageFailing()
	case coordinator.MessageAccepted, coordinator.AgentReportReceived, coordinator.AgentsAhead,
		coordinator.AgentListChanged,
		coordinator.AgentRejected, coordinator.MachineStarted,
		coordinator.RetainedBlobChecked, coordinator.BrokerTested, coordinator.CloneSeen,
		coordinator.ForeignAnnouncementSeen, coordinator.ForeignMessagesDeleted, coordinator.MeshComputed,
		coordinator.MessageDropped,
		coordinator.ModelEvaluated, coordinator.ModelReady, coordinator.ModelRejected,
		coordinator.ModelsNewerThanJournal,
		coordinator.StateFileRecovered,
		coordinator.StatisticsReady, coordinator.UploadStatusChanged, coordinator.UpdateLeftOut,
		coordinator.RepeatedLargeUpdates, coordinator.UpdatesClipped,
		coordinator.UpdatesExcludedByRule: // changes neither
	}
}

// ObserveRound implements coordinator.Observer.
func (w StatusObserver) ObserveRound(fact round.CoordinatorFact) {
	switch f := fact.(type) {
	case round.GatheringExtended:
		w.Line.SetActivity("waiting for agents: %d of %d are present", f.PresentAgents, f.Minimum)
	case round.RoundOpened:
		w.Line.SetActivity("round %d is open for %d of %d agents", f.Round, len(f.Participants), f.EligibleAgents)
	case round.RoundClosed:
		w.Line.SetActivity("round %d closed with %d of %d", f.Round, f.Accepted, f.Selected)
	case round.RoundAbandoned:
		w.Line.SetActivity("round %d abandoned with %d of %d", f.Round, f.Accepted, f.Selected)
	case round.ScheduleWait:
		if f.Reason == round.WaitWindow {
			w.Line.SetActivity("rounds rest until %s", f.WindowOpensAt.Format("Mon 15:04"))
		} else {
			w.Line.SetActivity("%d of %d agents have %d new rows", f.AgentsWithNewRows, f.RequiredAgents,
				f.RequiredNewRows)
		}
	case round.RunFinished:
		w.Line.SetActivity("the run is finished (%s), with version %d", f.Reason, f.Version)
	case round.AgentEligible, round.AgentDeclined, round.AgentJoined, round.AgentLeft, round.AgentReadmitted,
		round.AgentSidelined, round.AgentUnfit, round.EdgeEnded, round.EdgesJudged, round.PhaseEntered,
		round.RolloutBegan, round.RolloutEnded, round.RowCountsTooLarge, round.StopProgressReported,
		round.UpdateAccepted,
		round.UpdateRefused, round.UploaderReplaced: // changes neither
	}
}
