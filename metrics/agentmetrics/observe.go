package agentmetrics

import (
	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
)

var _ observe.Observer = (*Agent)(nil)

// observeRound reads the events of the round machine.
func (a *Agent) observeRound(fact observe.Event) {
	switch f := fact.(type) {
	case round.AnnouncementObeyed:
		a.round.Set(float64(f.Position.Round))
	case round.AnnouncementIgnored:
		a.ignoredAnnouncements.WithLabelValues(string(f.Reason)).Inc()
	case round.TaskPrepared:
		a.recordTaskPrepared(f)
	case round.WorkStarted:
		a.working.Set(1)
	case round.WorkEnded:
		a.recordWorkEnd(f)
	case round.UplinkBudgetTooSmall:
		a.budgetShortfalls.Inc()
	case round.EdgeLost:
		a.edgesLost.WithLabelValues(f.Reason.String()).Inc()
	case round.MessageUnsupported: // it declines, or says in its hello that it is unfit
	}
}

// Observe implements observe.Observer.
func (a *Agent) Observe(fact observe.Event) {
	a.observeRound(fact)
	switch f := fact.(type) {
	case agent.AnnouncementsStale:
		a.announcementsStale.Set(0)
		if f.StaleFor > 0 {
			a.announcementsStale.Set(1)
		}
	case agent.CertificateUsed:
		a.certificateEnds.Set(metrics.UnixSeconds(f.Until))
	case agent.AnnouncementMissing, agent.CertificateEnding, agent.ClockBehind, agent.PersonalModelReset, agent.Rekeyed,
		agent.RenewalRefused,
		agent.RootDocumentAdopted: // the log has it
	case agent.StateLost:
		a.lostFiles.WithLabelValues(f.File).Inc()
	case agent.BootRaised:
		a.raisedBootNumbers.Inc()
	case agent.GroupKeyAwaited:
		a.awaitingGroupKey.Set(1)
	case agent.GroupKeyReceived:
		a.awaitingGroupKey.Set(0)
	case agent.MessagesRejected:
		a.rejectionReason.SetActive(f.Reason.String())
	case agent.BudgetUsed:
		a.budget.Set(float64(f.Limit))
		a.budgetUsed.Set(float64(f.Used))
		a.roundEstimateBytes.Set(float64(f.RoundEstimate))
	case agent.DeviceRulesChecked:
		a.deviceJudged(f)
	case agent.DataLoaded:
		a.dataLoadDuration.Set(f.Took.Seconds())
	case agent.DataCollected:
		a.dataMetrics.observe(f)
	case agent.ModelFetched:
		a.modelFetches.Inc()
		a.modelVersion.Set(float64(f.Version))
		a.modelBytes.Set(float64(f.Bytes))
	case agent.ModelInUse:
		a.modelInUseVersion.Set(float64(f.Version))
		a.inUseSince.Set(metrics.UnixSeconds(f.Since))
	case agent.ModelJudged:
		if f.Result != agent.ModelOtherPinned {
			a.modelsJudged.WithLabelValues(string(f.Result)).Inc()
		}
		a.judgedModelRisk.Set(f.Risk)
		a.inUseRisk.Set(f.RiskOfModelInUse)
	case agent.Predicted:
		a.recordForecasts(f)
	case agent.ModelHookFailed:
		a.hookFailures.Inc()
	case agent.UpdateSettled:
		a.settledUpdates.WithLabelValues(f.Fate.String()).Inc()
	case agent.ErrorFeedbackKept:
		a.unsentResidualNorm.Set(f.Norm)
		if f.ResidualLost {
			a.lostResiduals.Inc()
		}
	case agent.Trained:
		a.trained(f)
	case agent.BlockBegan:
		a.begunBlocks.WithLabelValues(string(f.Origin)).Inc()
	case agent.Evaluated: // not counted
	case agent.NeighborsFound:
		a.neighbors.Set(float64(len(f.Neighbors)))
		a.cellAgents.Set(float64(f.OtherAgents))
	case agent.ExternalTrainerStarted: // not counted
	case agent.ExternalTrainerEnded:
		a.trainerEnds.Inc()
	case agent.TrainingFailed:
		a.trainingFailures.Inc()
	case agent.TrainingLockAwaited:
		a.waitingForTraining.Set(0)
		if f.LockHolder != "" {
			a.waitingForTraining.Set(1)
		}
		a.trainingWaitSeconds.Add(f.Waited.Seconds())
	}
}

func (a *Agent) recordForecasts(f agent.Predicted) {
	a.forecasts.Add(float64(f.PublishedForecasts))
	a.forecastsLost.Add(float64(f.LostForecasts))
	a.forecastsFailed.Add(float64(f.FailedRows))
	a.anomalies.Add(float64(f.Anomalies))
	if f.Err != nil {
		a.forecastsOK.Set(0)
	} else {
		a.forecastsOK.Set(1)
	}
	if f.PublishedForecasts > 0 {
		a.lastForecastAt.Set(metrics.UnixSeconds(a.now()))
	}
	if f.NewForecasts > 0 {
		a.forecastTook.Observe(f.Took.Seconds() / float64(f.NewForecasts))
	}
	if f.Residual == f.Residual { // else no label has come
		a.residual.Set(f.Residual)
	}
}

func (a *Agent) deviceJudged(f agent.DeviceRulesChecked) {
	a.allowedStepShare.Set(f.LocalStepShare)
	for _, m := range []struct {
		metrics.OptionalGauge
		value *float64
		scale float64
	}{{a.load, f.Load, 1}, {a.temperature, f.Temperature, 1}, {a.battery, f.BatteryPercent, 0.01},
		{a.availableMemory, f.AvailableMemory, 1}} {
		if m.value != nil {
			m.Set(*m.value * m.scale)
		}
	}
	switch decision := decisionOf(f.Verdict); {
	case decision == "", f.Rule == f.PreviousVerdict.Rule && decision == decisionOf(f.PreviousVerdict):
	default:
		a.deviceDecisions.WithLabelValues(string(f.Rule), decision).Inc()
	}
}

func decisionOf(v device.Verdict) string {
	switch {
	case v.Rule == "" || v.LocalStepShare == 1:
		return ""
	case v.LocalStepShare == 0:
		return "stop"
	}
	return "ease"
}

func (a *Agent) recordTaskPrepared(f round.TaskPrepared) {
	a.fittingRows.Set(float64(f.Samples))
	if f.UnfitReason == 0 {
		a.fitness.SetActive(metrics.FitnessOK)
	} else {
		a.fitness.SetActive(f.UnfitReason.String())
	}
}

func (a *Agent) recordWorkEnd(f round.WorkEnded) {
	reason := metrics.NoReason
	switch f.Result {
	case round.WorkRefused:
		reason = f.RefusalReason.String()
	case round.WorkDeclined:
		reason = f.DeclineReason.String()
	}
	a.rounds.WithLabelValues(f.Kind.String(), string(f.Result), reason).Inc()
	a.working.Set(0)
	a.lastRound.Set(metrics.UnixSeconds(a.now()))
}

func (a *Agent) trained(f agent.Trained) {
	a.riskBefore.Set(f.RiskBefore)
	a.riskAfter.Set(f.RiskAfter)
	a.heldOutScore.Set(f.HeldOutScore)
	a.localSteps.Set(float64(f.LocalSteps))
	a.stepEstimate.Set(f.StepTime.Seconds())
	a.stepCountDecisions.WithLabelValues(f.Sizing.String()).Inc()
	a.trainingTook.Observe(f.LocalStepsDuration.Seconds())
	if f.MixingStats != nil {
		a.recordMixing(f)
	}
	if f.LocalSteps > 0 {
		a.stepTook.Observe(f.LocalStepsDuration.Seconds() / float64(f.LocalSteps))
	}
}

func (a *Agent) recordMixing(f agent.Trained) {
	s := f.MixingStats
	a.appliedFlows.Add(float64(s.Flows))
	a.flowsLate.Add(float64(s.LateFlows))
	a.skippedSnapshots.Add(float64(s.SkippedSnapshots))
	a.neighbourTimeouts.Add(float64(s.TimedOutWaits))
	a.unreconciledEdges.Add(float64(s.Unreconciled))
	for why, n := range s.IgnoredMessages {
		a.ignoredPeerMessages.WithLabelValues(d2d.IgnoreReason(why).String()).Add(float64(n))
	}
	a.mixingTook.Observe(f.MixedFor.Seconds())
}
