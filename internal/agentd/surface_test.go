package agentd

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/agent/evaluation"
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
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// TestMain sets the time zone, because the golden files contain times of day.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	m.Run()
}

// agentEvents contains at least one event of each type of the agent and its host.
var agentEvents = []observe.Event{
	host.BrokerLinkChanged{IsConnected: true}, // logged by the MQTT session instead
	host.RefusedSubscriptionsChanged{Filters: []string{"d/a"}, NeighborBrokerFilters: []string{"b/hall/+"}},
	host.RefusedSubscriptionsChanged{},
	host.BrokerSelfTestEnded{SelfTestReport: mqtt.SelfTestReport{Result: mqtt.SelfTestPassed, Topic: "s/a/loop",
		LargeMessageBytes: 61504}},
	host.BrokerSelfTestEnded{SelfTestReport: mqtt.SelfTestReport{Result: mqtt.SelfTestDenied, Topic: "s/a/loop",
		LargeMessageBytes: 61504}},
	announcement.AnnouncementMissing{Reason: announcement.AccessDenied, Federation: "air"},
	// The previous event already logs the missing announcement.
	announcement.AnnouncementMissing{Reason: announcement.NotRetained, Federation: "air"},
	announcement.AnnouncementMissing{Reason: announcement.OtherFederation, Federation: "air",
		OtherFederations: []wire.FederationName{"airs"}},
	announcement.AnnouncementMissing{Federation: "air"},
	agentround.UplinkBudgetTooSmall{Round: 2, RoundBytes: 90_000, BytesLeft: 80_000},
	device.RulesChecked{RuleVerdict: device.RuleVerdict{LocalStepShare: 1, DecidingRule: device.RuleNone}},
	device.RulesChecked{RuleVerdict: device.RuleVerdict{DecidingRule: device.RuleTemperature}},
	device.RulesChecked{RuleVerdict: device.RuleVerdict{DecidingRule: device.RuleTemperature},
		PreviousVerdict: device.RuleVerdict{DecidingRule: device.RuleTemperature}},
	device.RulesChecked{RuleVerdict: device.RuleVerdict{LocalStepShare: 0.5, DecidingRule: device.RuleLoad},
		PreviousVerdict: device.RuleVerdict{DecidingRule: device.RuleTemperature}},
	presence.CloneSeen{Boot: 5, Nonce: 0xab, OtherBoot: 4, OtherNonce: 0xcd},
	presence.CloneSeen{Boot: 5, Nonce: 0xab, OtherBoot: 6, OtherNonce: 0xcd,
		DisconnectDuration: 72345 * time.Millisecond},
	presence.MessagesRejected{Reason: wire.RejectedUnlistedAgent},
	presence.MessagesRejected{Reason: wire.RejectedOtherKey},
	presence.MessagesRejected{Reason: wire.RejectedClone},
	presence.MessagesRejected{Reason: wire.RejectedOldEpoch},
	announcement.AnnouncementsStale{StaleFor: time.Minute},
	announcement.AnnouncementsStale{},
	identity.CertificateUsed{ExpiresAt: time.Unix(1_790_000_000, 0)},
	training.PersonalModelReset{Round: 7, Parameters: 198},
	training.PersonalModelReset{Round: 7, Parameters: 198, Err: errors.New("the risk is NaN")},
	identity.CertificateUsed{ExpiresAt: time.Unix(1_790_000_000, 0), IsRenewal: true},
	identity.CertificateExpiring{ExpiresAt: time.Unix(1_790_000_000, 0), TimeLeft: 100 * time.Hour},
	identity.CertificateExpiring{ExpiresAt: time.Unix(1_790_000_000, 0), TimeLeft: -time.Hour,
		LastRefusal: wire.RenewalStorageFailed},
	identity.RenewalRefused{Reason: wire.RenewalNoAuthority},
	identity.RenewalRefused{Reason: wire.RenewalDeviceRevoked},
	identity.RenewalRefused{Reason: wire.RenewalKeyOfOtherDevice},
	identity.DeviceKeyReplaced{},
	identity.MachineClockBehind{Machine: time.Unix(12, 0), UsedTime: time.Unix(1_790_000_000, 0)},
	identity.MachineClockBehind{Machine: time.Unix(1_790_000_000, 0)},
	identity.RootDocumentAdopted{Version: 2},
	presence.MessagesRejected{},
	agent.MessageDropped{Kind: mqtt.KindAnnouncement, Reason: part.DropSignature, Err: errors.New("wrong key")},
	agent.MessageDropped{Kind: mqtt.KindAnnouncement, Reason: part.DropVersion,
		Err: &wire.ProtocolVersionError{MessageVersion: 1}},
	taskdata.RowsLoaded{Task: "air", Rows: 712, LoadDuration: 12345 * time.Microsecond},
	taskdata.RowsLoaded{Task: "air", Rows: 715, RowsBefore: 712, LoadDuration: 2 * time.Millisecond},
	taskdata.RowsLoaded{Task: "air", Rows: 15, RowsBefore: 712, ReplacementReason: "a.csv: cut off",
		LoadDuration: 2 * time.Millisecond},
	taskdata.RowsLoaded{Task: "air", Rows: 1, ReplacementReason: "a.csv: cut off", Problem: errors.New("too few")},
	taskdata.RowsLoaded{Task: "air",
		Problem: &data.FileError{File: "a.csv", Line: 3, Column: "y", Problem: "empty"}},
	taskdata.SourceReportReceived{QualityReport: data.QualityReport{Columns: []data.ColumnReport{{Name: "pm25",
		Used:   30,
		Unused: map[data.UnusedReason]uint64{grid.ReasonOutOfRange: 4}, LastUnusedWhere: "a.csv: line 9"}}}},
	taskdata.SourceReportReceived{QualityReport: data.QualityReport{Columns: []data.ColumnReport{{Name: "pm25",
		Used:   30,
		Unused: map[data.UnusedReason]uint64{grid.ReasonOutOfRange: 4}, LastUnusedWhere: "line 9",
		LastUnusedProblem: "the value is absent, null or empty",
		LastUnusedByReason: map[data.UnusedReason]data.UnusedValue{grid.ReasonOutOfRange: {Where: "line 7",
			Problem: "2000 is out of range"}}}}}},
	taskdata.SourceReportReceived{QualityReport: data.QualityReport{Columns: []data.ColumnReport{{Name: "pm25",
		Unused: map[data.UnusedReason]uint64{grid.ReasonOutOfRange: 9}}}},
		PreviousReport: data.QualityReport{Columns: []data.ColumnReport{{Name: "pm25",
			Unused: map[data.UnusedReason]uint64{grid.ReasonOutOfRange: 4}}}}},
	taskdata.SourceReportReceived{QualityReport: data.QualityReport{Columns: []data.ColumnReport{{Name: "pm25",
		Used:   70,
		Unused: map[data.UnusedReason]uint64{grid.ReasonOutOfRange: 10}}}},
		PreviousReport: data.QualityReport{Columns: []data.ColumnReport{{Name: "pm25",
			Unused: map[data.UnusedReason]uint64{grid.ReasonOutOfRange: 9}}}}},
	taskdata.SourceReportReceived{QualityReport: data.QualityReport{Troubles: everyTrouble()}},
	taskdata.SourceReportReceived{PreviousReport: data.QualityReport{Troubles: everyTrouble()}},
	training.LocalTrainingFinished{Round: 4, Version: 3, LocalSteps: 20, StepCountReason: learner.StepCountByBudget,
		StepTime:   4 * time.Millisecond,
		RiskBefore: 0.512345, RiskAfter: 0.1234, LocalStepsDuration: 80 * time.Millisecond},
	training.LocalTrainingFinished{Round: 4, StepCountReason: learner.StepCountByBudget, LockWait: time.Second},
	training.LockAwaited{HolderFederation: "power"},
	training.LockAwaited{Waited: time.Second},
	training.LocalTrainingFailed{Round: 4, Err: errors.New("diverged")},
	agent.BaseModelFetched{Version: 3, Bytes: 88},
	host.StorageFailing{Operation: "save the update", Err: errors.New("no space left")},
	host.StorageRecovered{},
	agentround.AnnouncementIgnored{Position: wire.AnnouncementPosition{Epoch: 1, Run: 2, Round: 3, Attempt: 1,
		Phase: wire.PhaseOpen},
		Reason: agentround.IgnoredOlderAnnouncement},
	agentround.MessageUnsupported{MessageType: wire.TypeInvitation, Err: errors.New("section x: not known")},
	agentround.WorkStarted{Round: 4, Kind: wire.KindTraining, TimeLeft: time.Minute},
	agentround.WorkEnded{Round: 4, Kind: wire.KindTraining, Result: agentround.WorkAccepted},
	agentround.WorkEnded{Round: 4, Kind: wire.KindTraining, Result: agentround.WorkRefused,
		RefusalReason: wire.RefuseNotFinite},
	agentround.WorkEnded{Round: 4, Kind: wire.KindStatistics, Result: agentround.WorkDeclined,
		DeclineReason: wire.DeclineNoTime},
	agentround.WorkEnded{Round: 4, Kind: wire.KindTraining, Result: agentround.WorkSuperseded},
	fetch.GroupKeyAwaited{},
	fetch.GroupKeyReceived{},
	state.FileLost{File: "obeyed", Err: errors.New("damaged"),
		Consequence: "the next announcement is obeyed"},
	state.StartCounterRaised{From: 1, To: 8},
	budget.UplinkUsageChanged{Month: "2026-03", UsedBytes: 30_000_000, LimitBytes: 500_000_000,
		EstimatedRoundBytes: 90_000},
	predict.ModelJudged{Run: 7, Version: 4, Result: predict.Adopted, HeldOutRows: 300, Risk: 0.375,
		RiskOfModelInUse: 0.5},
	predict.ModelJudged{Run: 7, Version: 5, Result: predict.Worse, HeldOutRows: 300, Risk: 0.75,
		RiskOfModelInUse: 0.375},
	predict.ModelJudged{Run: 7, Version: 6, Result: predict.Failed, Risk: math.NaN(),
		RiskOfModelInUse: math.NaN(),
		Err:              errors.New("no space left")},
	predict.ModelInUseChanged{Run: 7, Version: 4, Task: "air", InstalledAt: time.Unix(1_700_000_000, 0)},
	predict.ActivationCommandFailed{Err: errors.New("exit status 1")},
	predict.ForecastsMade{NewForecasts: 6, PublishedForecasts: 4, FailedRows: 1, Anomalies: 1, MeanResidual: 0.125},
	predict.ForecastsMade{NewForecasts: 6, LostForecasts: 2, MeanResidual: math.NaN(),
		Err: errors.New("not connected")},
	predict.ForecastsMade{NewForecasts: 6, PublishedForecasts: 6, MeanResidual: math.NaN(), ErrorResolved: true},
	upload.UpdateFateReceived{Round: 1, Fate: wire.FateAggregated},
	upload.UpdateFateReceived{Round: 2, Fate: wire.FateMissedRoundEnd},
	upload.ResidualChanged{Round: 1, Norm: 0.5},
	upload.ResidualChanged{Round: 2, ResidualLost: true},
	evaluation.ModelEvaluated{Version: 4, Rows: 300, Risk: 0.375},
	evaluation.ModelEvaluated{Version: 4},
	evaluation.ModelEvaluated{Version: 4, Err: errors.New("measured.csv: no such file")},
	mesh.NeighborsChosen{Neighbors: []wire.AgentID{"a2", "a5"}, AliveOtherAgentCount: 7},
	training.EndlessBlockBegan{EdgesMadeForRound: 2, Origin: training.BlockFromNeighbor, Neighbors: 2},
	training.LocalTrainingFinished{Round: 2, LocalSteps: 10, StepTime: 3 * time.Millisecond, RiskBefore: 0.5,
		RiskAfter: 0.25,
		MixingStats: &d2d.MixingStats{LocalSteps: 10, AppliedFlows: 38, LateFlows: 2, SkippedSnapshots: 1,
			UnreconciledEdges: 1},
		BlockDuration: time.Second},
	training.LocalTrainingFinished{Round: 3, Version: 2, HeldOutScore: &learner.Score{Risk: 0.5, R2: 0.25,
		Accuracy: math.NaN(),
		Samples:  90}},
	external.ProgramStarted{ConfiguredName: "defects", ReportedName: "sklearn", Rows: 90,
		UnconfinedReason: "no user namespaces"},
	external.ProgramEnded{Trainer: "defects", Err: errors.New("exit status 7"),
		RestartDelay: time.Second},
	host.BrokerLinkChanged{ReconnectAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
	agentround.AnnouncementObeyed{Position: wire.AnnouncementPosition{Epoch: 1, Run: 7, Round: 1, Attempt: 1}},
	agentround.TaskFitnessChecked{UnfitReason: wire.DeclineTooFewRows},
	agentround.NeighborEdgeEnded{Round: 2, Neighbor: "a3", Reason: wire.EdgeEndTooDistant},
	agentround.NeighborEdgesRestored{Round: 3},
}

// everyTrouble returns one source trouble (problem with the data source) of each kind.
func everyTrouble() (all []data.SourceTrouble) {
	for _, kind := range data.TroubleKinds() {
		all = append(all, data.SourceTrouble{Kind: kind, Text: "text of " + string(kind)})
	}
	return all
}

// TestAgentSurface replays the agent's events. It compares the resulting log lines, status lines and readiness changes
// with testdata/agent-surface.txt. The last part of that file lists the conditions.
func TestAgentSurface(t *testing.T) {
	surface.WantAllEvents(t, agentEvents, "agent", "round/agentround", "host")
	line := daemon.NewStatusLine()
	board := line.NewBoard("")
	board.ResolveCondition(status.StartingCondition.Name)
	m := NewMetrics(prometheus.NewRegistry(), "")
	var out strings.Builder
	surface.RecordOutputs(t, &out, agentEvents, line, line.ReadinessErr, func(log *slog.Logger, event observe.Event) {
		reader := &daemon.EventDispatcher{Log: log, Metrics: m.agentMetrics.Events, Board: board}
		reader.Observe(event)
	})
	surface.RecordConditions(t, &out, agentEvents)
	testkit.Golden(t, "testdata/agent-surface.txt", out.String(), *update)
}
