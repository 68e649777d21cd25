package metrics_test

import (
	"errors"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/agent/external"
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/agent/upload"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/cleanup"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/duplicate"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/coordinator/uploads"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/coordinatord"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

var half, warm = 0.5, 65.0

// agentScript contains the events of an agent that connects, is accepted in one round, loses the broker, and fails in
// the next rounds. Each event changes a metric.
var agentScript = []observe.Event{
	host.BrokerLinkChanged{IsConnected: true},
	host.RefusedSubscriptionsChanged{Filters: []string{"fl/v1/air/d/a1"},
		NeighborBrokerFilters: []string{"fl/v1/air/b/hall/+"}},
	host.BrokerSelfTestEnded{SelfTestReport: mqtt.SelfTestReport{Result: mqtt.SelfTestPassed}},
	agentround.AnnouncementObeyed{Position: wire.AnnouncementPosition{Epoch: 1, Run: 7, Round: 1, Attempt: 1,
		Phase: wire.PhaseGathering}},
	taskdata.RowsLoaded{Task: "power", Rows: 1200, LoadDuration: 1500 * time.Millisecond},
	agentround.TaskFitnessChecked{RowCount: 1200},
	agentround.WorkStarted{Round: 1, Kind: wire.KindTraining, TimeLeft: time.Minute},
	agent.BaseModelFetched{Version: 3, Bytes: 4096},
	training.LockAwaited{HolderFederation: "power"},
	training.LockAwaited{Waited: 1500 * time.Millisecond},
	training.LocalTrainingFinished{
		Round: 1, Version: 3, LocalSteps: 50, StepCountReason: learner.StepCountByBudget,
		StepTime:   2 * time.Millisecond,
		RiskBefore: 0.75, RiskAfter: 0.5, LocalStepsDuration: 125 * time.Millisecond,
	},
	agentround.WorkEnded{Round: 1, Kind: wire.KindTraining, Result: agentround.WorkAccepted},
	host.BrokerLinkChanged{Err: errors.New("reset by peer")},
	host.BrokerLinkChanged{IsConnected: true},
	budget.UplinkUsageChanged{Month: "2026-03", UsedBytes: 30_000_000, LimitBytes: 500_000_000,
		EstimatedRoundBytes: 90_000},
	device.RulesChecked{RuleVerdict: device.RuleVerdict{LocalStepShare: 0.25, DecidingRule: device.RuleTemperature,
		SystemReading: device.SystemReading{
			LoadPerCore: &half, TemperatureCelsius: &warm, BatteryPercent: &warm, AvailableMemoryBytes: &warm,
		}}},
	device.RulesChecked{RuleVerdict: device.RuleVerdict{DecidingRule: device.RuleBattery},
		PreviousVerdict: device.RuleVerdict{LocalStepShare: 0.25, DecidingRule: device.RuleTemperature}},
	device.RulesChecked{RuleVerdict: device.RuleVerdict{LocalStepShare: 0.5, DecidingRule: device.RuleBattery},
		PreviousVerdict: device.RuleVerdict{DecidingRule: device.RuleBattery}},
	taskdata.SourceReportReceived{ShowsValues: true, QualityReport: data.QualityReport{LargestWrongShare: 0.125,
		Columns: []data.ColumnReport{
			{Name: "pm25", Used: 40, NewestTime: 1772366400e9, NewestValue: new(35.5),
				Unused: map[data.UnusedReason]uint64{grid.ReasonNoRoom: 2}},
			{Name: "temp", Used: 30, NewestTime: 1772366300e9, NewestValue: new(21.0)}},
		Troubles: []data.SourceTrouble{{Kind: data.TroubleSilent, Text: "pm25: no readings received since noon"}}}},
	agentround.NeighborEdgeEnded{Round: 2, Neighbor: "a3", Reason: wire.EdgeEndTooDistant},
	agentround.UplinkBudgetTooSmall{Round: 2, RoundBytes: 90_000, BytesLeft: 80_000},
	announcement.AnnouncementsStale{StaleFor: time.Hour},
	host.StorageFailing{Operation: "save the position of the announcement", Err: errors.New("no space left")},
	host.StorageRecovered{},
	fetch.GroupKeyAwaited{},
	fetch.GroupKeyReceived{},
	fetch.GroupKeyAwaited{},
	state.FileLost{File: "obeyed", Err: errors.New("damaged"), Consequence: "the next announcement is obeyed"},
	state.StartCounterRaised{From: 1, To: 8},
	identity.CertificateUsed{ExpiresAt: clock()},
	presence.MessagesRejected{Reason: wire.RejectedOldEpoch},
	presence.CloneSeen{Boot: 5, OtherBoot: 5, Nonce: 1, OtherNonce: 2},
	agent.MessageDropped{Kind: mqtt.KindCoordinatorToAgent, Reason: part.DropSignature,
		Err: errors.New("invalid signature")},
	agentround.AnnouncementIgnored{Position: wire.AnnouncementPosition{Epoch: 1, Run: 7, Round: 1},
		Reason: agentround.IgnoredOlderAnnouncement},
	agentround.WorkStarted{Round: 2, Kind: wire.KindTraining, TimeLeft: time.Minute},
	training.LocalTrainingFinished{
		Round: 2, Version: 4, LocalSteps: 10, StepCountReason: learner.StepCountByMinimum,
		StepTime:   3 * time.Millisecond,
		RiskBefore: 0.5, RiskAfter: 0.25, LocalStepsDuration: 3 * time.Second,
	},
	training.LocalTrainingFinished{
		Round: 2, Version: 4, LocalSteps: 10, StepTime: 3 * time.Millisecond, RiskBefore: 0.5, RiskAfter: 0.25,
		LocalStepsDuration: 30 * time.Millisecond,
		MixingStats: &d2d.MixingStats{LocalSteps: 10, AppliedFlows: 38, LateFlows: 2, SkippedSnapshots: 1,
			TimedOutWaits:           1,
			UnreconciledEdges:       1,
			IgnoredMessagesByReason: [10]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, BlockDuration: time.Second,
		HeldOutScore: &learner.Score{Risk: 0.875, R2: 0.25, Accuracy: 0.5, Samples: 300},
	},
	predict.ModelJudged{Run: 7, Version: 4, Result: predict.Adopted, HeldOutRows: 300, Risk: 0.375,
		RiskOfModelInUse: 0.5},
	predict.ModelInUseChanged{Run: 7, Version: 4, Task: "air", InstalledAt: time.Unix(1_700_000_000, 0)},
	predict.ActivationCommandFailed{Err: errors.New("exit status 1")},
	external.ProgramEnded{Trainer: "defects", Err: errors.New("exit status 7"), RestartDelay: time.Second},
	predict.ForecastsMade{NewForecasts: 6, PublishedForecasts: 4, LostForecasts: 2, FailedRows: 1, Anomalies: 1,
		MeanResidual: 0.125, ForecastDuration: 12 * time.Millisecond,
		ShownForecast: &predict.Forecast{Target: modelfile.PredictionTarget{TargetColumn: "pm25 in 6h",
			Horizon: 6 * time.Hour}, Value: 41},
		ShownResidual: &predict.Forecast{Target: modelfile.PredictionTarget{TargetColumn: "pm25 in 6h",
			Horizon: 6 * time.Hour}, Value: 38, Residual: new(-2.5)}},
	upload.UpdateFateReceived{Round: 1, Fate: wire.FateAggregated},
	upload.ResidualChanged{Round: 1, ResidualLost: true},
	upload.ResidualChanged{Round: 1, Norm: 0.5},
	training.EndlessBlockBegan{EdgesMadeForRound: 2, Origin: training.BlockFromNeighbor, Neighbors: 2},
	mesh.NeighborsChosen{Neighbors: []wire.AgentID{"a2", "a5"}, AliveOtherAgentCount: 7},
	training.LocalTrainingFailed{Round: 2, Err: errors.New("diverged")},
	agentround.WorkEnded{Round: 2, Kind: wire.KindTraining, Result: agentround.WorkDeclined,
		DeclineReason: wire.DeclineDiverged},
	agentround.WorkEnded{Round: 3, Kind: wire.KindStatistics, Result: agentround.WorkRefused,
		RefusalReason: wire.RefuseLate},
	agentround.TaskFitnessChecked{UnfitReason: wire.DeclineTooFewRows},
}

// coordinatorScript contains the events of a run: a statistics round, a published training round, an abandoned round,
// and the end. Each event changes a metric.
var coordinatorScript = []observe.Event{
	coordinatord.MLflowHistoryLogged{}, coordinatord.MLflowHistoryLogged{Err: errors.New("no route to host")},
	coordinator.AgentListChanged{ListedAgents: 3},
	host.BrokerLinkChanged{IsConnected: true},
	host.RefusedSubscriptionsChanged{Filters: []string{"fl/v1/air/s/+"}},
	host.BrokerSelfTestEnded{SelfTestReport: mqtt.SelfTestReport{Result: mqtt.SelfTestSwallowed}},
	publish.BlobReadBackEnded{Parts: 40, Missing: 3},
	round.PhaseEntered{Phase: round.CoordinatorGathering, PreviousPhase: round.CoordinatorIdle},
	round.AgentEligible{Agent: "a1", RowCount: 100, EligibleAgents: 1},
	round.GatheringExtended{PresentAgents: 1, MinAgents: 2},
	round.PhaseEntered{Phase: round.CoordinatorGathering, PreviousPhase: round.CoordinatorGathering,
		PreviousPhaseDuration: 20 * time.Second},
	round.AgentEligible{Agent: "a2", RowCount: 300, EligibleAgents: 2},
	round.AgentUnfit{Agent: "a3", Reason: wire.DeclineBadData},
	round.PhaseEntered{Phase: round.CoordinatorCollecting, PreviousPhase: round.CoordinatorGathering,
		PreviousPhaseDuration: 5 * time.Second},
	round.RoundOpened{Round: 1, Attempt: 2, Kind: wire.KindStatistics, EligibleAgents: 2,
		Participants: []wire.AgentID{"a1", "a2"}},
	round.AgentJoined{Agent: "a1", Round: 1},
	round.UpdateAccepted{Agent: "a1", Round: 1, Update: wire.Update{Kind: wire.KindStatistics}, Norm: 1e9,
		TimeSinceAnnouncement: 500 * time.Millisecond},
	round.PhaseEntered{Phase: round.CoordinatorClosing, PreviousPhase: round.CoordinatorCollecting,
		PreviousPhaseDuration: 2 * time.Second},
	aggregation.StateFileRecovered{File: aggregation.StateModel, PreviousVersion: 8, Version: 7},
	aggregation.ModelsNewerThanJournal{JournalVersion: 7, Newest: 12},
	aggregation.StatisticsReady{Rows: 400, Columns: 5},
	round.RoundClosed{
		Round: 1, Kind: wire.KindStatistics, SelectedAgents: 2, AcceptedUpdates: 1,
		MissingAgents: []wire.AgentID{"a2"}, ClosedByDeadline: true,
		RoundDuration: 2 * time.Second,
	},
	round.RoundOpened{Round: 2, Attempt: 1, Kind: wire.KindTraining, EligibleAgents: 2,
		Participants: []wire.AgentID{"a1", "a2"}},
	uploads.UploadStatusChanged{Receiving: 1, Queued: 2, BufferedBytes: 61440},
	acceptedUpdate("a1", 2, 50, 0.75, 0.5, 2),
	acceptedUpdate("a2", 2, 8, 0.25, 0.125, 1),
	aggregation.ModelReady{
		Round: 2, Version: 1, Bytes: 4096, UpdateSpread: 0.25, AggregateNorm: 1.5, ModelStepNorm: 0.75,
		MeanReportedRisk:    0.5,
		AggregationDuration: 20 * time.Millisecond,
		HeldOutScore:        &learner.Score{Risk: 0.25, R2: 0.875, Accuracy: math.NaN(), Samples: 64},
	},
	round.RoundClosed{Round: 2, Kind: wire.KindTraining, NewModelVersion: 1, SelectedAgents: 2, AcceptedUpdates: 2,
		RoundDuration: 4 * time.Second},
	meshplan.MeshComputed{Round: 3, MixingGraph: meshplan.MixingGraph{
		Edges: []round.MixingEdge{{A: "a1", B: "a2", MixingWeight: 0.5}}, MixingAgents: 2, SecondEigenvalue: 0.25,
		EigenvalueRatio:     1. / 3,
		ConnectedComponents: [][]wire.AgentID{{"a1", "a2"}},
	}},
	round.RoundOpened{Round: 3, Attempt: 1, Kind: wire.KindTraining, BaseModelVersion: 1, EligibleAgents: 2,
		ResponseLottery: round.ResponseLottery{AnswerThreshold: 1 << 30, EstimatedAgents: 1000},
		Participants:    []wire.AgentID{"a1", "a2"}},
	host.StorageFailing{Operation: "save the state of the round in the journal", Err: errors.New("no space left")},
	host.StorageRecovered{},
	coordinator.RoundMachineStarted{Epoch: 2, EpochRaised: true, AggregationRule: "trimmed_mean",
		ServerOptimizer: "fedavgm"},
	duplicate.ForeignAnnouncementSeen{Foreign: wire.AnnouncementPosition{Round: 2},
		Own: wire.AnnouncementPosition{Round: 3}},
	cleanup.ForeignMessagesDeleted{DeletedTopics: 3, ExampleTopic: "fl/v1/plant/u/0/plant-a1/7f/0",
		TopicAgents: []wire.AgentID{"a1"}},
	duplicate.AheadAgentsChanged{Agents: 3, NewestRun: 7, NewestRound: 20},
	replica.StandingBy{Leader: "c2"}, replica.StoreFailing{Operation: "read the current leader from the state store",
		Err: errors.New("no server")},
	replica.StoreRecovered{}, replica.LeadershipGained{Epoch: 4, TakeoverDuration: time.Second},
	replica.LeaseRenewed{LeaseEndsAt: clock()},
	replica.LeadershipLost{Err: replica.ErrLost}, replica.LeadershipGained{Epoch: 6, TakeoverDuration: time.Second},
	enrol.OpenJoinChanged{OpenUntil: clock()},
	enrol.DeviceJoined{Agent: "a1"},
	enrol.JoinRefused{Reason: wire.EnrolmentTokenUsed},
	enrol.CredentialsRenewed{Agent: "a1", KeyChanged: true},
	enrol.RenewalRefused{Reason: wire.RenewalStorageFailed},
	devices.CloneSeen{Agent: "a1", BootEpochs: [2]wire.Epoch{5, 5}, Nonces: [2]uint64{1, 2}},
	coordinator.MessageDropped{Kind: mqtt.KindAgentToCoordinator, Agent: "a9", Reason: devices.DropUnknown,
		Err: errors.New("no key")},
	reportOf("a1", 5, "agentd 0.1.0", 2, 10), reportOf("a1", 5, "agentd 0.1.0", 4, 20),
	reportOf("a2", 2, "agentd 0.2.0", 1, 40),
	round.AgentDeclined{Agent: "a1", Round: 3, Reason: wire.DeclineNoTime},
	round.UploaderReplaced{Round: 3, ReplacedAgent: "a1", ReplacementAgent: "a2"},
	round.UpdateRefused{Agent: "a2", Round: 3, Reason: wire.RefuseNormTooLarge},
	aggregation.UpdateLeftOut{Round: 3, Agent: "a2", Reason: aggregation.LeftOutNorm, Norm: 1e30, UsualNorm: 1},
	aggregation.ModelRejected{Round: 3, Version: 2, EarlierVersion: 1, NextVersion: 3,
		SuspectAgents: []wire.AgentID{"a2"}},
	aggregation.UpdatesClipped{Round: 3, Reason: aggregation.ClippedAbove, Agents: []wire.AgentID{"a1", "a2"},
		LongestNorm: 7, MaxNorm: 3},
	aggregation.UpdatesExcludedByRule{Round: 3, Rule: "krum", Agents: []wire.AgentID{"a1", "a2", "a3"}},
	round.RoundAbandoned{Round: 3, Kind: wire.KindTraining, Reason: round.AbandonQuorumMissed, SelectedAgents: 2,
		RoundDuration: time.Minute},
	round.RowCountsTooLarge{Round: 3, Agents: []wire.AgentID{"a2"}, RowLimit: 1000},
	round.EdgesJudged{MixingBlockRound: 2, ReportCount: 6, MedianDistance: 0.5, EndedEdges: 1},
	round.EdgeEnded{MixingBlockRound: 2, Edge: round.EndedEdge{A: "a1", B: "a2", Reason: wire.EdgeEndNotMixing,
		ConsecutiveEndCount: 1, ExcludedThroughRound: 10},
		MeanDistance: 0.7, MedianDistance: 0.5},
	round.AgentSidelined{Agent: "a2", Round: 3, Reason: round.SidelinedSilent, DrawsSatOut: 1, LastSidelinedRound: 4,
		EligibleAgents: 2},
	round.AgentLeft{Agent: "a1", Reason: round.LeftConnectionLost, EligibleAgents: 1},
	round.AgentReadmitted{Agent: "a2", Round: 4, ReadmittedEarly: true, EligibleAgents: 1},
	aggregation.ModelReady{ // no real task has both R2 and accuracy; the script sets both so that all metrics appear
		Round: 4, Version: 2, Bytes: 4096, AggregationDuration: time.Second,
		HeldOutScore: &learner.Score{Risk: 0.5, R2: 0.5, Accuracy: 0.75, Samples: 64},
	},
	coordinator.ModelEvaluated{Version: 2, RespondingAgents: 7, Result: resultOfBoth()},
	round.RolloutBegan{Candidate: wire.ModelRef{Run: 7, Version: 2}, Released: wire.ModelRef{Run: 6, Version: 90},
		TrialAgents: 4, MinDecidingAgents: 3},
	round.RolloutEnded{Candidate: wire.ModelRef{Run: 7, Version: 2}, Released: wire.ModelRef{Run: 7, Version: 2},
		Verdict: rollout.Verdict{Result: rollout.CandidateReleased, ReportingAgents: 5, VotingAgents: 4,
			MedianErrorRatio: 0.9375}},
	round.RolloutBegan{Candidate: wire.ModelRef{Run: 7, Version: 3}, Released: wire.ModelRef{Run: 7, Version: 2},
		IsResumed: true},
	round.ScheduleWait{Reason: round.WaitForNewRows, AgentsWithNewRows: 2, RequiredAgents: 3, RequiredNewRows: 10},
	round.StopProgressReported{StopRules: stop.Config{Patience: 2}, State: stop.State{TransferredBytes: 1 << 20,
		JudgedRiskCount: 3,
		LatestRisk:      0.75,
		BestRisk:        0.5,
		BestVersion:     1, AggregationsSinceBest: 2}},
	round.RunFinished{ModelVersion: 3, Reason: stop.PatienceExhausted},
	round.PhaseEntered{Phase: round.CoordinatorFinished, PreviousPhase: round.CoordinatorClosing,
		PreviousPhaseDuration: time.Second},
	host.BrokerLinkChanged{Err: errors.New("reset by peer")},
}

// resultOfBoth returns an evaluation with metrics of regression and of classification, which no real task has, so that
// all metrics appear.
func resultOfBoth() evaluation.Result {
	r2, accuracy, f1 := 0.5, 0.75, 0.625
	risks := evaluation.AgentMetricDistribution{Mean: 0.5, Variance: 0.0625, Worst: 2, Q10: 0.125, Q25: 0.25,
		Q50: 0.375,
		Q90: 1}
	return evaluation.Result{ReportingAgents: 6, Rows: 600, Risk: 0.5, R2: &r2, Accuracy: &accuracy, MacroF1: &f1,
		Classes:   []evaluation.ClassMetrics{{Rows: 400, CorrectRows: 300, F1: &f1}, {}},
		AgentRisk: &risks, AgentAccuracy: &risks, ResidualQuantiles: []evaluation.ResidualQuantile{{Share: 0.99,
			MaxResidual: 8}}}
}

func acceptedUpdate(agent wire.AgentID, r wire.RoundID, steps uint32, before, after,
	norm float64) round.UpdateAccepted {
	return round.UpdateAccepted{
		Agent: agent, Round: r, Norm: norm, TimeSinceAnnouncement: 3 * time.Second, BytesSavedByCodec: 100,
		Update: wire.Update{Kind: wire.KindTraining, LocalSteps: steps, RiskBefore: before, RiskAfter: after},
	}
}

// reportOf returns an agent's report in which each counter has the value rounds and each gauge the value x.
func reportOf(agent wire.AgentID, boot wire.Epoch, software string, rounds, x float64) coordinator.AgentReportReceived {
	m := wire.AgentMetricsReport{IntervalSeconds: 300, SoftwareVersion: software}
	for _, r := range metrics.ReportedSeriesTable {
		value := x
		if r.IsCounter {
			value = rounds
		} else if r.Labels != "" {
			value = 1
		}
		m.Metrics = append(m.Metrics, wire.ReportMetric{ID: r.ID, Value: value})
	}
	return coordinator.AgentReportReceived{Agent: agent, BootEpoch: boot, Report: m}
}
