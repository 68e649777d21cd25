package coordinatord

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/coordinator/cleanup"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/duplicate"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/coordinator/uploads"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/metrics/coordinatormetrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

var one, two = wire.ModelRef{Run: 7, Version: 1}, wire.ModelRef{Run: 6, Version: 2}

// coordinatorEvents contains at least one event of each type of the coordinator, its host and enrolment.
var coordinatorEvents = []observe.Event{
	host.BrokerLinkChanged{Err: errors.New("gone")}, // logged by the MQTT session instead
	host.RefusedSubscriptionsChanged{Filters: []string{"s/+"}},
	devices.CloneSeen{Agent: "a1", BootEpochs: [2]wire.Epoch{5, 5}, Nonces: [2]uint64{0xab, 0xcd}},
	devices.AgentRejected{Agent: "a1", Reason: wire.RejectedOldEpoch},
	devices.AgentRejected{Agent: "a1", Reason: wire.RejectedUnlistedAgent},
	coordinator.RoundMachineStarted{Epoch: 1, AggregationRule: "trimmed_mean", ServerOptimizer: "none"},
	coordinator.RoundMachineStarted{Epoch: 2, EpochRaised: true, AggregationRule: "mean",
		ServerOptimizer: "fedavgm"},
	duplicate.ForeignAnnouncementSeen{
		Foreign: wire.AnnouncementPosition{Epoch: 1, Run: 7, Round: 2, Attempt: 1, Phase: wire.PhaseOpen},
		Own:     wire.AnnouncementPosition{Epoch: 1, Run: 7, Round: 3, Attempt: 1, Phase: wire.PhaseOpen},
	},
	cleanup.ForeignMessagesDeleted{DeletedTopics: 3, ExampleTopic: "fl/v1/plant/u/0/plant-a1/7f/0",
		TopicAgents: []wire.AgentID{"a1"}},
	duplicate.AheadAgentsChanged{Agents: 3, NewestRun: 7, NewestRound: 20},
	duplicate.AheadAgentsChanged{},
	coordinator.MessageDropped{Kind: mqtt.KindAgentToCoordinator, Agent: "a", Reason: devices.DropUnknown,
		Err: errors.New("not in the list")},
	aggregation.StateFileRecovered{File: aggregation.StateModel, Damage: errors.New("torn"),
		MovedTo:         "m.aside-1",
		PreviousVersion: 8, Version: 7},
	aggregation.StateFileRecovered{File: aggregation.StateModel, Damage: errors.New("torn"), PreviousVersion: 8,
		Version: 9},
	aggregation.StateFileRecovered{File: aggregation.StateTask, Damage: errors.New("torn")},
	aggregation.ModelsNewerThanJournal{JournalVersion: 7, Newest: 12},
	aggregation.StatisticsReady{Rows: 7603, Columns: 22},
	aggregation.StatisticsReady{Rows: 7603, Columns: 22, ConstantColumns: []string{"lat"}},
	aggregation.StatisticsReady{Rows: 7603, Columns: 22,
		DistantDataAgents: []aggregation.DistantDataAgent{{Agent: "a1", Column: "temp", DeviationsFromMean: 123456}}},
	aggregation.UpdateLeftOut{Round: 7, Agent: "a1", Reason: aggregation.LeftOutRisk, Norm: 2e30,
		UsualNorm: 0.51234},
	aggregation.RepeatedLargeUpdates{Round: 7, Agent: "a1", ConsecutiveUpdates: 3, SinceVersion: 4, Norm: 30,
		UsualNorm:   1,
		ClippedNorm: 3},
	aggregation.RepeatedLargeUpdates{Round: 8, Agent: "a1", ConsecutiveUpdates: 5, SinceVersion: 4, Norm: 30,
		UsualNorm:   1,
		ClippedNorm: 3},
	aggregation.RepeatedLargeUpdates{Round: 9, Agent: "a1", UsualNorm: 1},
	aggregation.ModelRejected{Round: 7, Version: 6, EarlierVersion: 5, NextVersion: 7, MedianReportedRisk: 2e30,
		SuspectAgents: []wire.AgentID{"a1"}},
	aggregation.UpdatesClipped{Round: 7, Reason: aggregation.ClippedRadius, Agents: []wire.AgentID{"a1", "a2"},
		LongestNorm: 2.5, MaxNorm: 0.3},
	aggregation.UpdatesExcludedByRule{Round: 7, Rule: "krum", Agents: []wire.AgentID{"a1", "a2"}},
	aggregation.ModelReady{Round: 2, Version: 1, Hash: wire.Digest{1}, MeanReportedRisk: 0.53099,
		HeldOutScore: &learner.Score{R2: 0.58875, Accuracy: math.NaN()}},
	aggregation.ModelReady{Round: 2, Version: 1, MeanReportedRisk: math.NaN(),
		HeldOutScore: &learner.Score{R2: math.NaN(), Accuracy: 0.75}},
	aggregation.ModelReady{Version: 1, MeanReportedRisk: 12345.6},
	aggregation.ModelReady{Version: 2, MeanReportedRisk: 1e9, RiskAssessment: aggregation.RiskAssessment{
		RiskDataSource: "median of the values reported by agents", Risk: 1e9, LowestRisk: 0.5, Exploded: true,
		ExplosionBegan: true}},
	aggregation.ModelReady{Version: 3, MeanReportedRisk: 0.5,
		RiskAssessment: aggregation.RiskAssessment{RiskDataSource: "median of the values reported by agents", Risk: 0.5,
			LowestRisk: 0.5}},
	MLflowHistoryLogged{URL: "http://mlflow", Experiment: "air", Err: errors.New("no route to host")},
	MLflowHistoryLogged{URL: "http://mlflow", Experiment: "air", Err: errors.New("no route to host"),
		IsRepeatedOutcome: true},
	MLflowHistoryLogged{URL: "http://mlflow", Experiment: "air"},
	AccessRulesWritten{"/etc/mosquitto/acl", errors.New("permission denied")},
	AccessRulesWritten{ACLFile: "/etc/mosquitto/acl"},
	uploads.UploadStatusChanged{Receiving: 1},
	publish.BlobReadBackEnded{Blob: wire.Digest{1}, Parts: 3, CheckDuration: time.Second},
	publish.BlobReadBackEnded{Blob: wire.Digest{1}, Parts: 3, Missing: 2, RepublishDelay: time.Second},
	publish.BlobReadBackEnded{Blob: wire.Digest{1}, Parts: 3, Missing: 3, ReadRefused: true,
		RepublishDelay: time.Second},
	round.PhaseEntered{},
	round.AgentEligible{Agent: "a", RowCount: 712, EligibleAgents: 3},
	round.AgentUnfit{Agent: "a", Reason: wire.DeclineBadData},
	round.AgentUnfit{Agent: "a", Reason: wire.DeclineBadData, DataProblem: wire.DataProblem{Column: "pm25",
		Reason: "out_of_range", ExampleLocation: "a.csv: line 12", UnusableValues: 30, TotalValues: 100}},
	round.AgentUnfit{Agent: "a", Reason: wire.DeclineBadData, DataProblem: wire.DataProblem{Column: "pm25",
		ExampleLocation: "a.csv: line 1"}},
	round.AgentLeft{Agent: "a", Reason: round.LeftConnectionLost, EligibleAgents: 2},
	round.AgentSidelined{Agent: "a", Round: 2, Reason: round.SidelinedSilent, DrawsSatOut: 4,
		LastSidelinedRound: 6,
		EligibleAgents:     2},
	round.AgentReadmitted{Agent: "a", Round: 7, EligibleAgents: 3},
	round.AgentReadmitted{Agent: "a", Round: 5, ReadmittedEarly: true, EligibleAgents: 3},
	round.RowCountsTooLarge{Round: 2, Agents: []wire.AgentID{"a", "b"}, RowLimit: 1000},
	round.RowCountsTooLarge{Round: 3, Agents: []wire.AgentID{"a"}, RowLimit: 1000, WeightsAreCapped: true},
	round.GatheringExtended{PresentAgents: 2, MinAgents: 3},
	round.RoundOpened{Round: 2, Attempt: 1, Kind: wire.KindTraining, EligibleAgents: 3,
		Participants: []wire.AgentID{"a", "b"}},
	round.AgentJoined{Agent: "a", Round: 2},
	round.AgentDeclined{Agent: "a", Round: 2, Reason: wire.DeclineNoTime},
	round.UpdateAccepted{Agent: "a", Round: 2, Update: wire.Update{LocalSteps: 20}, Norm: 0.123456,
		TimeSinceAnnouncement: time.Second},
	round.UpdateRefused{Agent: "a", Round: 2, Reason: wire.RefuseNormTooLarge},
	round.RoundClosed{Round: 2, Kind: wire.KindTraining, NewModelVersion: 1, SelectedAgents: 3, AcceptedUpdates: 2,
		MissingAgents: []wire.AgentID{"c"}, RoundDuration: 1500 * time.Millisecond},
	round.RoundClosed{Round: 1, Kind: wire.KindStatistics, SelectedAgents: 3, AcceptedUpdates: 3,
		RoundDuration: time.Second},
	round.RoundAbandoned{Round: 2, Reason: round.AbandonQuorumMissed, AcceptedUpdates: 1, SelectedAgents: 3,
		MissingAgents: []wire.AgentID{"b", "c"}, RoundDuration: time.Minute},
	round.RoundAbandoned{Round: 2, Reason: round.AbandonUnusableAggregate, Err: errors.New("not finite"),
		RoundDuration: time.Minute},
	round.ScheduleWait{Reason: round.WaitForNewRows, AgentsWithNewRows: 1, RequiredAgents: 3, RequiredNewRows: 10,
		AgentsWithoutRowCount: 2},
	round.ScheduleWait{Reason: round.WaitForWindow, WindowOpensAt: time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC)},
	round.RunFinished{ModelVersion: 50, Reason: stop.PatienceExhausted},
	round.RolloutBegan{Candidate: one, Released: two, TrialAgents: 4, MinDecidingAgents: 3},
	round.RolloutBegan{Candidate: one, Released: two, TrialAgents: 2, MinDecidingAgents: 3},
	round.RolloutBegan{Candidate: one, Released: two, IsResumed: true},
	round.RolloutEnded{Candidate: one, Released: one, Verdict: rollout.Verdict{Result: rollout.FirstModelReleased}},
	round.RolloutEnded{Candidate: one, Released: one,
		Verdict: rollout.Verdict{Result: rollout.CandidateReleased, ReportingAgents: 5, VotingAgents: 4,
			MedianErrorRatio: 0.75}},
	round.RolloutEnded{Candidate: one, Released: two,
		Verdict: rollout.Verdict{Result: rollout.CandidateWorse, ReportingAgents: 5, VotingAgents: 4,
			MedianErrorRatio: math.Inf(1)}},
	round.RolloutEnded{Candidate: one, Released: two,
		Verdict: rollout.Verdict{Result: rollout.TooFewReports, ReportingAgents: 1, MedianErrorRatio: math.NaN()}},
	host.BrokerLinkChanged{IsConnected: true},
	host.RefusedSubscriptionsChanged{},
	coordinator.AgentListChanged{ListedAgents: 3, RemovedAgents: []wire.AgentID{"a9"}},
	host.BrokerSelfTestEnded{SelfTestReport: mqtt.SelfTestReport{Result: mqtt.SelfTestSwallowed,
		LargeMessageBytes: 61504}},
	host.StorageFailing{Operation: "save the state of the round in the journal", Err: errors.New("no space left")},
	host.StorageRecovered{},
	coordinator.ModelEvaluated{Version: 2, RespondingAgents: 7, PresentAgents: 8,
		Result: evaluation.Result{ReportingAgents: 6, Rows: 600, Risk: 0.5}},
	coordinator.ModelEvaluated{Version: 3, RespondingAgents: 2, PresentAgents: 8, TooFewAgents: true},
	coordinator.ModelEvaluated{Version: 4, PresentAgents: 8},
	coordinator.MessageAccepted{Agent: "a1"},
	coordinator.AgentReportReceived{Agent: "a1", BootEpoch: 5},
	meshplan.MeshComputed{Round: 1, Err: errors.New("edges.csv: no such file")},
	meshplan.MeshComputed{Round: 2, MixingGraph: meshplan.MixingGraph{UnlocatedAgents: []wire.AgentID{"a3"}}},
	meshplan.MeshComputed{Round: 3, MixingGraph: meshplan.MixingGraph{Edges: []round.MixingEdge{{A: "a1", B: "a2",
		MixingWeight: 0.5}},
		MixingAgents: 2, SecondEigenvalue: 0.25, EigenvalueRatio: 1. / 3, ConnectedComponents: [][]wire.AgentID{{"a1"},
			{"a2"}}}},
	round.UploaderReplaced{Round: 3, ReplacedAgent: "a1", ReplacementAgent: "a2"},
	round.StopProgressReported{StopRules: stop.Config{Patience: 2}, State: stop.State{JudgedRiskCount: 3,
		LatestRisk: 0.75,
		BestRisk:   0.5}},
	round.EdgesJudged{MixingBlockRound: 2, ReportCount: 6, MedianDistance: 0.5, EndedEdges: 1},
	round.EdgeEnded{MixingBlockRound: 2, MeanDistance: 0.7, MedianDistance: 0.5,
		Edge: round.EndedEdge{A: "a1", B: "a2", Reason: wire.EdgeEndNotMixing, ConsecutiveEndCount: 1,
			ExcludedThroughRound: 10}},
	round.EdgeEnded{MixingBlockRound: 2, MeanDistance: 9, MedianDistance: 0.5,
		Edge: round.EndedEdge{A: "a1", B: "a3", Reason: wire.EdgeEndTooDistant, ConsecutiveEndCount: 1,
			ExcludedThroughRound: 10}},
	enrol.DeviceJoined{Agent: "a1", ReplacedAgent: "a0"},
	enrol.JoinRefused{SourceAddress: "192.0.2.7:4000", Reason: wire.EnrolmentTokenUsed},
	enrol.CredentialsRenewed{Agent: "a1", KeyChanged: true, CertificateExpiresAt: time.Unix(1_900_000_000, 0)},
	enrol.RenewalRefused{Agent: "a1", Reason: wire.RenewalStorageFailed, Err: errors.New("no space left")},
	enrol.OpenJoinChanged{OpenUntil: time.Unix(1_900_000_000, 0)},
	enrol.OpenJoinChanged{},
	replica.StandingBy{Leader: "k2"},
	replica.LeadershipGained{Epoch: 4, TakeoverDuration: 3 * time.Second},
	replica.LeaseRenewed{LeaseEndsAt: time.Unix(1_900_000_000, 0)},
	replica.StoreFailing{Operation: "commit changes of the state folder to the state store",
		Err: errors.New("timeout")},
	replica.StoreRecovered{},
	replica.LeadershipLost{Err: errors.New("timeout")},
}

// TestCoordinatorSurface is the counterpart of TestAgentSurface, with the entries of the audit log.
func TestCoordinatorSurface(t *testing.T) {
	surface.WantAllEvents(t, coordinatorEvents, "coordinator", "round", "host", "internal/coordinatord")
	state := t.TempDir()
	trail := &auditor{logger: slog.New(slog.DiscardHandler), dir: state}
	var err error
	trail.log, err = audit.Open(store.LocalDisk, state, "air", ed25519.NewKeyFromSeed(make([]byte, 32)),
		func() time.Time { return time.Unix(1_800_000_000, 0) }, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	line := daemon.NewStatusLine()
	board := line.NewBoard("")
	board.ResolveCondition(status.StartingCondition.Name)
	m := coordinatormetrics.New(prometheus.NewRegistry(), time.Now)
	var out strings.Builder
	surface.RecordOutputs(t, &out, coordinatorEvents, line, line.ReadinessErr, func(log *slog.Logger,
		event observe.Event) {
		reader := &daemon.EventDispatcher{Log: log, Metrics: m.Events, Board: board}
		reader.Observe(event)
		trail.recordEnrolment(event)
		trail.Observe(event)
	})
	trail.close()
	files, err := audit.FileNames(store.LocalDisk, state)
	if err != nil || len(files) != 1 {
		t.Fatalf("audit log: %v, %v", files, err)
	}
	text, err := os.ReadFile(filepath.Join(state, audit.Folder, files[0]))
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for line := range strings.Lines(string(text)) {
		var e audit.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries,
			fmt.Sprintf("  %s | agent=%s | about=%s | who=%s\n", e.Event, e.Agent, e.Subject, e.Actor))
	}
	slices.Sort(entries) // RecordEntryLater writes an entry later than RecordEntry
	surface.RecordConditions(t, &out, coordinatorEvents)
	out.WriteString("\naudit log\n" + strings.Join(entries, ""))
	testkit.Golden(t, "testdata/coordinator-surface.txt", out.String(), *update)
}

// testOptions returns the options of a coordinator that observes events.
func testOptions(log *slog.Logger, reg prometheus.Registerer) Options {
	m, board := coordinatormetrics.New(reg, time.Now), status.NewBoard(time.Now, nil)
	return Options{Logger: log, Metrics: m, Board: board,
		eventDispatcher: &daemon.EventDispatcher{Log: log, Metrics: m.Events, Board: board}}
}
