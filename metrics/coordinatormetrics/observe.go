package coordinatormetrics

import (
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

var _ observe.Observer = (*Coordinator)(nil)

// observeRound reads the events of the round machine.
func (c *Coordinator) observeRound(fact observe.Event) {
	switch f := fact.(type) {
	case round.PhaseEntered:
		c.phaseEntered(f)
	case round.GatheringExtended:
		c.extendedGatherings.Inc()
		c.eligible.Set(float64(f.PresentAgents))
	case round.AgentEligible:
		c.eligibleHellos.Inc()
		c.eligible.Set(float64(f.EligibleAgents))
	case round.AgentUnfit:
		c.unfit.WithLabelValues(f.Reason.String()).Inc()
		c.eligible.Set(float64(f.EligibleAgents))
	case round.AgentLeft:
		c.departedAgents.WithLabelValues(string(f.Reason)).Inc()
		c.eligible.Set(float64(f.EligibleAgents))
	case round.AgentSidelined:
		c.sidelined.WithLabelValues(string(f.Reason)).Inc()
		c.eligible.Set(float64(f.EligibleAgents))
	case round.AgentReadmitted:
		c.readmitted(f)
	case round.EdgesJudged:
		c.medianMeshDistance.Set(f.MedianDistance)
	case round.EdgeEnded:
		c.edgesEnded.WithLabelValues(f.Edge.Reason.String()).Inc()
	case round.RowCountsTooLarge:
		c.largeRowCounts.Add(float64(len(f.Agents)))
	case round.RoundOpened:
		c.recordRoundOpened(f)
	case round.RoundClosed:
		c.closed(f)
	case round.RoundAbandoned:
		c.abandoned(f)
	case round.StopProgressReported:
		c.stop.recordStopProgress(f)
	case round.ScheduleWait:
		c.stop.waitReason.SetActive(string(f.Reason))
		if f.Reason == round.WaitNewRows {
			c.stop.agentsWithNewRows.Set(float64(f.AgentsWithNewRows))
		}
	case round.RunFinished:
		c.finished.Set(1)
		c.stop.ended.SetActive(string(f.Reason))
		c.modelVersion.Set(float64(f.Version))
	case round.RolloutBegan:
		c.rollout.began(f)
	case round.RolloutEnded:
		c.rollout.ended(f)
	case round.AgentJoined:
		c.joined.Inc()
	case round.AgentDeclined:
		c.declined.WithLabelValues(f.Reason.String()).Inc()
	case round.UploaderReplaced:
		c.replaced.Inc()
	case round.UpdateAccepted:
		c.updateAccepted(f)
	case round.UpdateRefused:
		c.refused.WithLabelValues(f.Reason.String()).Inc()
	}
}

// Observe implements observe.Observer.
func (c *Coordinator) Observe(fact observe.Event) {
	c.observeRound(fact)
	c.observeEnrolment(fact)
	switch f := fact.(type) {
	case coordinator.AgentListChanged:
		c.enrolled.Set(float64(f.ListedAgents))
		c.reports.forget(f.RemovedAgents)
	case coordinator.MachineStarted:
		c.epoch.Set(float64(f.Epoch))
		c.rule.SetActive(f.AggregationRule)
		c.serverOptimizer.SetActive(f.ServerOptimizer)
	case coordinator.ForeignAnnouncementSeen:
		c.foreignAnnouncements.Inc()
	case coordinator.ForeignMessagesDeleted:
		c.foreignRetainedMessages.Add(float64(f.DeletedTopics))
	case coordinator.AgentsAhead:
		c.agentsAhead.Set(float64(f.Agents))
	case coordinator.RetainedBlobChecked:
		c.missingBlobChunks.Set(float64(f.Missing))
	case coordinator.MessageAccepted, coordinator.AgentRejected: // not counted
	case coordinator.AgentReportReceived:
		c.reports.recordReport(f)
	case coordinator.StateFileRecovered:
		c.damagedFiles.WithLabelValues(string(f.File)).Set(1)
		c.modelVersion.Set(float64(f.Version))
	case coordinator.ModelsNewerThanJournal:
		c.modelsAhead.Set(float64(f.Newest - f.JournalVersion))
	case coordinator.StatisticsReady:
		c.statisticsRows.Set(f.Rows)
	case coordinator.ModelEvaluated:
		c.evaluated.observe(f)
	case coordinator.UpdateLeftOut:
		c.leftOut.WithLabelValues(string(f.Reason)).Inc()
	case coordinator.ModelRejected:
		c.leftOut.WithLabelValues(string(coordinator.LeftOutRisk)).Add(float64(len(f.Agents)))
	case coordinator.RepeatedLargeUpdates: // not counted
	case coordinator.UpdatesClipped:
		c.clipped.WithLabelValues(string(f.Reason)).Add(float64(len(f.Agents)))
	case coordinator.UpdatesExcludedByRule:
		c.leftOut.WithLabelValues(string(coordinator.LeftOutRule)).Add(float64(len(f.Agents)))
	case coordinator.ModelReady:
		c.modelVersion.Set(float64(f.Version))
		c.modelBytes.Set(float64(f.Bytes))
		c.updateSpread.Set(f.UpdateSpread)
		c.aggregateNorm.Set(f.AggregateNorm)
		c.stepNorm.Set(f.ModelStepNorm)
		if !math.IsNaN(f.AggregateNorm) {
			c.foldDuration.Observe(f.AggregationDuration.Seconds())
		}
		c.heldOutScore.Set(f.HeldOutScore)
	case coordinator.MeshComputed:
		c.meshMade(f)
	case coordinator.UploadStatusChanged:
		c.receiving.Set(float64(f.Receiving))
		c.queued.Set(float64(f.Queued))
		c.buffered.Set(float64(f.BufferedBytes))
	}
}

// phaseEntered leaves out a phase that was entered and left in one step, as the journaled one is at a start: it took no
// time.
func (c *Coordinator) phaseEntered(f round.PhaseEntered) {
	c.phase.SetActive(string(f.Phase))
	if f.Phase != round.CoordinatorIdle {
		c.stop.waitReason.SetActive("")
	}
	if f.PreviousPhaseDuration > 0 && slices.Contains(timedPhases, f.PreviousPhase) {
		c.phaseTook.WithLabelValues(string(f.PreviousPhase)).Observe(f.PreviousPhaseDuration.Seconds())
	}
}

func (c *Coordinator) recordRoundOpened(f round.RoundOpened) {
	c.finished.Set(0) // by another rule than before
	c.stop.ended.SetActive("")
	c.round.Set(float64(f.Round))
	c.attempt.Set(float64(f.Attempt))
	c.askedShare.Set(f.ResponseLottery.Probability())
	if n := f.ResponseLottery.Agents; n > 0 {
		c.estimatedAgents.Set(n)
	}
	c.modelVersion.Set(float64(f.Version))
	c.eligible.Set(float64(f.EligibleAgents))
	c.sidelinedNow.Set(float64(len(f.SidelinedAgents)))
}

func (c *Coordinator) readmitted(f round.AgentReadmitted) {
	c.eligible.Set(float64(f.EligibleAgents))
	if f.ReadmittedEarly {
		c.readmittedEarly.Inc()
	}
}

func (c *Coordinator) closed(f round.RoundClosed) {
	c.rounds.WithLabelValues(f.Kind.String(), outcomePublished, metrics.NoReason).Inc()
	c.roundTook.WithLabelValues(outcomePublished).Observe(f.RoundDuration.Seconds())
	if f.ByDeadline {
		c.closedByDeadline.Inc()
	}
	c.aggregatedUpdates.Add(float64(f.AggregatedUpdates))
	c.lastRound.Set(metrics.UnixSeconds(c.now()))
	c.countParticipants(f.Selected, f.Accepted, len(f.Missing))
	if f.Kind == wire.KindTraining {
		c.showRoundMeans(f.Round, f.Accepted)
	}
}

func (c *Coordinator) abandoned(f round.RoundAbandoned) {
	c.rounds.WithLabelValues(f.Kind.String(), outcomeAbandoned, string(f.Reason)).Inc()
	c.roundTook.WithLabelValues(outcomeAbandoned).Observe(f.RoundDuration.Seconds())
	c.countParticipants(f.Selected, f.Accepted, len(f.Missing))
}

// countParticipants counts them when the round ends, since a restart opens a round
// twice and closes it once.
func (c *Coordinator) countParticipants(selected, accepted, missing int) {
	c.selectedParticipants.Add(float64(selected))
	c.missingParticipants.Add(float64(missing))
	c.lastRoundByFate.WithLabelValues(fateAccepted).Set(float64(accepted))
	c.lastRoundByFate.WithLabelValues(fateMissing).Set(float64(missing))
	c.lastRoundByFate.WithLabelValues(fateOut).Set(float64(selected - accepted - missing))
}

// updateAccepted measures training updates only: the norm of a statistics
// round's sums says nothing.
func (c *Coordinator) updateAccepted(f round.UpdateAccepted) {
	c.accepted.Inc()
	c.acceptanceDelay.Observe(f.SinceAnnouncement.Seconds())
	if f.Update.Kind != wire.KindTraining {
		return
	}
	c.norm.Observe(f.Norm)
	c.localSteps.Observe(float64(f.Update.LocalSteps))
	c.savedBytes.Add(float64(f.SavedBytes))
	c.sums.add(f.Round, &f.Update, f.Norm)
}

func (c *Coordinator) meshMade(f coordinator.MeshComputed) {
	c.meshAgents.Set(float64(f.MixingAgents))
	c.meshEdges.Set(float64(len(f.Edges)))
	c.meshParts.Set(float64(len(f.ConnectedComponents)))
	c.meshEigenvalue.Set(f.SecondEigenvalue)
	c.meshEigenvalueRatio.Set(f.EigenvalueRatio)
}
