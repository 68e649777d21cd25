package status_test

import (
	"errors"
	"flag"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/cleanup"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/duplicate"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/agentd/agentstatus"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorstatus"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestMain sets the time zone, because the golden files contain times of day.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	m.Run()
}

func accept8(id wire.AgentID, e uint32) round.UpdateAccepted {
	return round.UpdateAccepted{Agent: id, Round: 8, Update: wire.Update{LocalSteps: e}}
}

func TestCoordinatorPage(t *testing.T) {
	c := surface.NewClock()
	v := newCoordinatorPage(c.Now)
	v.RecordCoordinatorStart(coordinatorstatus.TaskVersionInEffect{Version: 1}, &round.Config{MaxAggregations: 20,
		RoundTimeout: 2 * time.Minute},
		runs.EarlierRunSummary{})
	v.Observe(coordinator.AgentListChanged{ListedAgents: 12})
	surface.ComparePage(t, *update, "coordinator_new", v.Status())
	tell := func(events ...observe.Event) {
		for _, f := range events {
			v.Observe(f)
		}
	}
	c.Advance(2 * time.Second)
	tell(host.BrokerLinkChanged{IsConnected: true}, round.PhaseEntered{Phase: round.CoordinatorGathering},
		host.BrokerSelfTestEnded{SelfTestReport: mqtt.SelfTestReport{Result: mqtt.SelfTestSwallowed}},
		host.RefusedSubscriptionsChanged{Filters: []string{"fl/v1/air/p/+", "fl/v1/air/s/+"}},
		round.AgentUnfit{Agent: "s9", Reason: wire.DeclineTooFewRows, EligibleAgents: 11},
		round.AgentUnfit{Agent: "s3", Reason: wire.DeclineBadData, EligibleAgents: 11},
		round.AgentUnfit{Agent: "s8", Reason: wire.DeclineBadData, EligibleAgents: 11,
			DataProblem: wire.DataProblem{Column: "pm25",
				Reason: "out_of_range", ExampleLocation: "/data/a.csv: line 12", UnusableValues: 30, TotalValues: 100}},
		round.AgentEligible{Agent: "s3", EligibleAgents: 11})
	for i, risk := range []float64{0.9, 0.6, math.NaN(), 0.5, 0.47, 0.5, 0.44} {
		c.Advance(time.Minute)
		tell(aggregation.ModelReady{Version: wire.ModelVersion(i + 1), MeanReportedRisk: risk,
			HeldOutScore: &learner.Score{Risk: 0.4, R2: 0.58, Accuracy: math.NaN()}})
	}
	tell(meshplan.MeshComputed{Round: 8,
		MixingGraph: meshplan.MixingGraph{MixingAgents: 11, Edges: make([]round.MixingEdge, 22),
			ConnectedComponents: make([][]wire.AgentID,
				1),
			SecondEigenvalue: 0.9, EigenvalueRatio: 9}},
		round.RolloutEnded{Candidate: wire.ModelRef{Run: 5, Version: 3}, Released: wire.ModelRef{Run: 5, Version: 2},
			Verdict: rollout.Verdict{Result: rollout.CandidateWorse}},
		round.AgentSidelined{Agent: "s7", Round: 7, Reason: round.SidelinedSilent, DrawsSatOut: 2,
			LastSidelinedRound: 9,
			EligibleAgents:     10},
		round.RoundAbandoned{Round: 7, Reason: round.AbandonQuorumMissed},
		round.RoundOpened{Round: 8, Attempt: 2, Kind: wire.KindTraining, BaseModelVersion: 7, EligibleAgents: 10,
			Participants: []wire.AgentID{"s1", "s2", "s3", "s4", "s5", "s6"},
			SidelinedAgents: []round.SidelinedAgent{{Agent: "s7", Reason: round.SidelinedSilent,
				ConsecutiveFailures: 2, DrawsSatOut: 2,
				LastSidelinedRound: 9}}},
		round.PhaseEntered{Phase: round.CoordinatorCollecting})
	c.Advance(3 * time.Second)
	tell(round.AgentJoined{Agent: "s1", Round: 8}, round.AgentJoined{Agent: "s2", Round: 8},
		round.AgentJoined{Agent: "s4", Round: 8},
		round.AgentDeclined{Agent: "s5", Round: 8, Reason: wire.DeclineNoTime})
	c.Advance(9 * time.Second)
	tell(accept8("s1", 20), accept8("s2", 7), round.UpdateRefused{Agent: "s4", Round: 8,
		Reason: wire.RefuseNormTooLarge},
		round.UpdateRefused{Agent: "s3", Round: 6, Reason: wire.RefuseLate})
	surface.ComparePage(t, *update, "coordinator_withdrawn", v.Status())
	tell(round.RolloutBegan{Candidate: wire.ModelRef{Run: 5, Version: 7}, Released: wire.ModelRef{Run: 5, Version: 2},
		TrialAgents: 3})
	tell(round.AgentJoined{Agent: "s6", Round: 8})
	c.Advance(30 * time.Second)
	surface.ComparePage(t, *update, "coordinator_collecting", v.Status())
	tell(host.BrokerLinkChanged{Err: errors.New("connection reset by peer")},
		host.BrokerSelfTestEnded{SelfTestReport: mqtt.SelfTestReport{Result: mqtt.SelfTestPassed}},
		host.RefusedSubscriptionsChanged{},
		publish.BlobReadBackEnded{Parts: 9, Missing: 2}, devices.CloneSeen{Agent: "s1"},
		duplicate.ForeignAnnouncementSeen{}, cleanup.ForeignMessagesDeleted{DeletedTopics: 3,
			ExampleTopic: "fl/v1/air/x/air-s1/9/0"},
		duplicate.AheadAgentsChanged{Agents: 3, NewestRun: 7, NewestRound: 20}, round.StopProgressReported{
			StopRules: stop.Config{TargetR2: 0.9, TargetRisk: 0.1, Patience: 5, TimeLimit: time.Hour, ByteLimit: 5e6},
			State: stop.State{TimeLimitStartedAt: c.Now(), TransferredBytes: 6e6, JudgedRiskCount: 9,
				LatestRisk: 0.25, BestRisk: 0.2, BestVersion: 12, AggregationsSinceBest: 3},
		}, round.RunFinished{ModelVersion: 20, Reason: stop.ByteLimitReached},
		round.PhaseEntered{Phase: round.CoordinatorFinished})
	for i := range 30 {
		tell(round.UpdateRefused{Agent: "s1", Round: wire.RoundID(100 + i), Reason: wire.RefuseLate})
	}
	surface.ComparePage(t, *update, "coordinator_finished", v.Status())
	v.Observe(aggregation.RepeatedLargeUpdates{Agent: "s1", ConsecutiveUpdates: 3, Norm: 9, UsualNorm: 1})
	if page := v.Status().Draw(100); !strings.Contains(page, "large updates: s1") {
		t.Errorf("large updates are missing:\n%s", page)
	}
	v.RecordCoordinatorStart(coordinatorstatus.TaskVersionInEffect{Version: 2}, &round.Config{},
		runs.EarlierRunSummary{})
	page := v.Status().Draw(100)
	for _, ofEarlierRun := range []string{"mesh", "predictions", "ends ", "(bytes)", "large updates"} {
		if strings.Contains(page, ofEarlierRun) {
			t.Errorf("%q of an earlier run is on the page:\n%s", ofEarlierRun, page)
		}
	}
}

// TestRecall checks that a restarted coordinator shows the results of its run before the restart.
func TestRecall(t *testing.T) {
	v := newCoordinatorPage(surface.NewClock().Now)
	r2 := 0.5
	v.RecordCoordinatorStart(coordinatorstatus.TaskVersionInEffect{}, &round.Config{},
		runs.EarlierRunSummary{Version: 7,
			MeanAgentRisks: []float64{3, 2},
			R2:             &r2})
	v.Observe(aggregation.ModelReady{Version: 8, MeanReportedRisk: 1,
		HeldOutScore: &learner.Score{R2: 0.75, Risk: 1, Accuracy: math.NaN()}})
	if got := v.Status().Draw(80); !strings.Contains(got, "version 8") ||
		!strings.Contains(got, "3 → 1 over 3 rounds") || !strings.Contains(got, "R² 0.75") {
		t.Error(got)
	}
}

// TestStateProblems checks that the page shows problems of the state folder that were found at the start.
func TestStateProblems(t *testing.T) {
	v := newCoordinatorPage(surface.NewClock().Now)
	v.Observe(aggregation.StateFileRecovered{File: aggregation.StateModel, PreviousVersion: 8, Version: 7})
	v.Observe(aggregation.StateFileRecovered{File: aggregation.StateTask, PreviousVersion: 8, Version: 8})
	v.Observe(aggregation.ModelsNewerThanJournal{JournalVersion: 7, Newest: 12})
	got := v.Status().Draw(200)
	for _, want := range []string{"model 8 in the state folder is missing or damaged, so the run continues from " +
		"model 7",
		"the file task in the state folder was damaged or missing", "the disk contains models up to version 12"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %q", got, want)
		}
	}
	v.Observe(aggregation.StateFileRecovered{File: aggregation.StateModel, PreviousVersion: 8, Version: 9})
	if got, want := v.Status().Draw(200),
		"model 8 in the state folder is missing or damaged, so the run continues from model 9"; !strings.Contains(got,
		want) {
		t.Errorf("%s\nwant %q", got, want)
	}
}

// TestRejectedModel checks that the page shows a rejected model for the next 20 versions, or until another run begins.
func TestRejectedModel(t *testing.T) {
	for _, next := range []wire.ModelVersion{28, 6} {
		v := newCoordinatorPage(surface.NewClock().Now)
		v.Observe(aggregation.ModelRejected{Version: 6, EarlierVersion: 5, NextVersion: 7,
			SuspectAgents: []wire.AgentID{"s1", "s2"}})
		v.Observe(aggregation.ModelReady{Version: 7, MeanReportedRisk: math.NaN()})
		v.Observe(aggregation.ModelReady{Version: 27, MeanReportedRisk: math.NaN()})
		const want = "the run continues from model 5 as version 7; these agents sent the largest updates: " +
			"s1, s2"
		if got := v.Status().Draw(300); !strings.Contains(got, want) {
			t.Errorf("%s\nwant %q", got, want)
		}
		v.Observe(aggregation.ModelReady{Version: next, MeanReportedRisk: math.NaN()})
		if got := v.Status().Draw(300); strings.Contains(got, "rejected") {
			t.Errorf("at version %d:\n%s", next, got)
		}
	}
}

// TestMixingPage checks that the page does not show mixing agents as late or missing if they were not selected to send
// an update.
func TestMixingPage(t *testing.T) {
	c := surface.NewClock()
	v := newCoordinatorPage(c.Now)
	v.RecordCoordinatorStart(coordinatorstatus.TaskVersionInEffect{Version: 3, NextVersion: 4},
		&round.Config{Algorithm: spec.FedDec,
			Participants: 2,
			RoundTimeout: time.Minute},
		runs.EarlierRunSummary{})
	for _, f := range []observe.Event{
		coordinator.AgentListChanged{ListedAgents: 4}, round.PhaseEntered{Phase: round.CoordinatorCollecting},
		round.RoundOpened{Round: 8, Attempt: 1, Kind: wire.KindTraining, EligibleAgents: 4,
			Participants: []wire.AgentID{"s1", "s2", "s3", "s4"}},
		round.AgentJoined{Agent: "s1", Round: 8}, round.AgentJoined{Agent: "s2", Round: 8},
		round.AgentJoined{Agent: "s3", Round: 8},
	} {
		v.Observe(f)
	}
	c.Advance(time.Second)
	v.Observe(accept8("s1", 8))
	c.Advance(10 * time.Second)
	surface.ComparePage(t, *update, "coordinator_mixing", v.Status())
	v.Observe(accept8("s2", 8))
	v.Observe(round.PhaseEntered{Phase: round.CoordinatorIdle})
	surface.ComparePage(t, *update, "coordinator_mixed", v.Status())
}

func TestAgentPage(t *testing.T) {
	c := surface.NewClock()
	v := newAgentPage("s1", c.Now)
	surface.ComparePage(t, *update, "agent_new", v.Status())
	tell := func(events ...observe.Event) {
		for _, f := range events {
			v.Observe(f)
		}
	}
	tell(host.BrokerLinkChanged{IsConnected: true},
		agentround.AnnouncementObeyed{Position: wire.AnnouncementPosition{Round: 4}},
		agentround.TaskFitnessChecked{RowCount: 712})
	for i, risk := range []float64{0.5, 0.4, 0.3} {
		c.Advance(time.Minute)
		tell(agentround.WorkStarted{Round: wire.RoundID(4 + i), Kind: wire.KindTraining, TimeLeft: 2 * time.Minute},
			training.LocalTrainingFinished{Round: wire.RoundID(4 + i), LocalSteps: 20,
				StepCountReason: learner.StepCountByBudget,
				StepTime:        4 * time.Millisecond, RiskBefore: risk, RiskAfter: 0.2,
				LocalStepsDuration: 80 * time.Millisecond,
				MixingStats:        &d2d.MixingStats{AppliedFlows: 38, LateFlows: 2}},
			agentround.WorkEnded{Round: wire.RoundID(4 + i), Kind: wire.KindTraining, Result: agentround.WorkAccepted})
	}
	tell(agentround.WorkEnded{Round: 7, Kind: wire.KindTraining, Result: agentround.WorkDeclined,
		DeclineReason: wire.DeclineNoTime},
		agentround.AnnouncementObeyed{Position: wire.AnnouncementPosition{Round: 8}},
		agentround.WorkStarted{Round: 8, Kind: wire.KindTraining, TimeLeft: 2 * time.Minute},
		budget.UplinkUsageChanged{Month: "2026-03", UsedBytes: 9e6, LimitBytes: 20e6, EstimatedRoundBytes: 1},
		identity.CertificateUsed{ExpiresAt: c.Now().Add(240 * 24 * time.Hour)},
		training.LocalTrainingFailed{Round: 7, Err: errors.New("diverged")})
	c.Advance(15 * time.Second)
	surface.ComparePage(t, *update, "agent_working", v.Status())
	tell(training.LocalTrainingFinished{Round: 8, LocalSteps: 20, StepCountReason: learner.StepCountByBudget,
		StepTime:   time.Millisecond,
		RiskBefore: 0.3, LocalStepsDuration: 20 * time.Millisecond, LockWait: 90 * time.Second},
		training.LockAwaited{HolderFederation: "power"})
	c.Advance(2 * time.Second)
	surface.ComparePage(t, *update, "agent_waits", v.Status())
	tell(training.LockAwaited{Waited: 2 * time.Second}, agentround.UplinkBudgetTooSmall{Round: 9, RoundBytes: 5000,
		BytesLeft: 10},
		taskdata.RowsLoaded{Problem: errors.New("a.csv: line 3: no number")},
		agentround.TaskFitnessChecked{UnfitReason: wire.DeclineBadData},
		agentround.WorkEnded{Round: 8, Result: agentround.WorkRefused, RefusalReason: wire.RefuseLate},
		host.BrokerLinkChanged{Err: errors.New("connection refused")}, presence.CloneSeen{},
		presence.MessagesRejected{Reason: wire.RejectedOldEpoch},
		agent.MessageDropped{Kind: mqtt.KindPresence, Reason: part.DropVersion,
			Err: &wire.ProtocolVersionError{MessageVersion: 3}},
		agent.MessageDropped{Kind: mqtt.KindAnnouncement, Reason: part.DropVersion,
			Err: &wire.ProtocolVersionError{MessageVersion: 1}},
		taskdata.SourceReportReceived{QualityReport: data.QualityReport{Rows: 40, BadRows: 12,
			Columns: []data.ColumnReport{
				{Name: "pm25", ReceivedValues: 100, Used: 96,
					Unused: map[data.UnusedReason]uint64{grid.ReasonOutOfRange: 4,
						grid.ReasonGap: 12},
					NewestTime: c.Now().UnixNano(), LastUnusedWhere: "/data/a.csv: line 101"},
				{Name: "temp", ReceivedValues: 100, Used: 100},
				{Unused: map[data.UnusedReason]uint64{grid.ReasonMalformed: 3}}}}})
	surface.ComparePage(t, *update, "agent_unfit", v.Status())
	tell(budget.UplinkUsageChanged{Month: "2026-04", UsedBytes: 9, LimitBytes: 20e6, EstimatedRoundBytes: 5000},
		presence.MessagesRejected{},
		agentround.AnnouncementObeyed{})
	if page := v.Status().Draw(1000); strings.Count(page, "\n!") != 2 {
		t.Errorf("a new month, and yet:\n%s", page)
	}
}

// TestAnnouncementMissingPage checks that the page explains each cause of a missing announcement with a separate text
// and a remedy.
func TestAnnouncementMissingPage(t *testing.T) {
	v := newAgentPage("s1", surface.NewClock().Now)
	seen := map[string]announcement.MissingReason{}
	for _, tt := range []struct {
		f    announcement.AnnouncementMissing
		want []string
	}{
		{announcement.AnnouncementMissing{Reason: announcement.UntrustedKey, Federation: "air"},
			[]string{"signed with a key that this device does not accept", "identity.coordinator_key",
				"devices rotate ID"}},
		{announcement.AnnouncementMissing{Reason: announcement.OtherFederation, Federation: "air",
			OtherFederations: []wire.FederationName{"airs"}}, []string{"announces federation airs",
			"has federation: air "}},
		{announcement.AnnouncementMissing{Reason: announcement.NotRetained, Federation: "air",
			OtherFederations: []wire.FederationName{"mill"}},
			[]string{"start the coordinator", "broker.prefix", "other federations at this broker: mill"}},
		{announcement.AnnouncementMissing{Reason: announcement.AccessDenied, Federation: "air"},
			[]string{"access rules", "acl_file", "systemctl reload mosquitto"}},
	} {
		if tt.f.Reason == announcement.AccessDenied {
			v.Observe(host.BrokerSelfTestEnded{SelfTestReport: mqtt.SelfTestReport{Result: mqtt.SelfTestDenied,
				Topic: "loop"}})
		}
		v.Observe(tt.f)
		page := v.Status().Draw(1000)
		for _, want := range tt.want {
			if !strings.Contains(page, want) {
				t.Errorf("%s: no %q in\n%s", tt.f.Reason, want, page)
			}
		}
		if other, twice := seen[page]; twice {
			t.Errorf("%s and %s have the same page", tt.f.Reason, other)
		}
		seen[page] = tt.f.Reason
	}
	v.Observe(host.BrokerSelfTestEnded{SelfTestReport: mqtt.SelfTestReport{Result: mqtt.SelfTestPassed}})
	v.Observe(announcement.AnnouncementMissing{Federation: "air"})
	if page := v.Status().Draw(1000); strings.Contains(page, "\n!") || strings.Contains(page, "no task:") {
		t.Errorf("after an announcement:\n%s", page)
	}
}

// TestReachablePage checks the page of a coordinator that invites only a fraction of the agents. It must show the
// fraction and the estimated number of agents.
func TestReachablePage(t *testing.T) {
	c := surface.NewClock()
	v := newCoordinatorPage(c.Now)
	for _, tt := range []struct {
		is   round.ResponseLottery
		want bool
	}{{round.ResponseLottery{AnswerThreshold: 1 << 30, EstimatedAgents: 1234.4}, true}, {round.ResponseLottery{},
		false}} {
		v.Observe(round.RoundOpened{Round: 8, Kind: wire.KindTraining, EligibleAgents: 10,
			ResponseLottery: tt.is})
		page := v.Status().Draw(120)
		if says := strings.Contains(page,
			"about 1234 available (estimate from the replies of 25 % of the agents)\n"); says != tt.want {
			t.Errorf("%+v: \n%s", tt.is, page)
		}
	}
}

// TestAwayPage checks the page of an agent that has disconnected on purpose. It must show the time of the reconnection,
// and it must show if the reconnection is late.
func TestAwayPage(t *testing.T) {
	c := surface.NewClock()
	v := newAgentPage("s1", c.Now)
	broker := func() string {
		for line := range strings.Lines(v.Status().Draw(120)) {
			if rest, is := strings.CutPrefix(line, "broker"); is {
				return strings.TrimSpace(rest)
			}
		}
		return ""
	}
	back := c.Now().Add(time.Hour)
	v.Observe(host.BrokerLinkChanged{Err: mqtt.ErrPlannedDisconnect, ReconnectAt: back})
	c.Advance(20 * time.Minute)
	want := "disconnected on purpose for 20m0s, will reconnect in 40m0s, at " + back.Local().Format(time.DateTime)
	if got := broker(); got != want {
		t.Errorf("broker %q, want %q", got, want)
	}
	c.Advance(50 * time.Minute)
	if got := broker(); got != "NOT connected to the broker: the planned reconnection is 10m0s overdue" {
		t.Errorf("broker %q of an agent that is late", got)
	}
	v.Observe(host.BrokerLinkChanged{IsConnected: true})
	if got := broker(); !strings.HasPrefix(got, "connected for ") {
		t.Errorf("broker %q of one that is back", got)
	}
}

// TestStorageProblem checks that the pages of agent and coordinator show why the disk cannot be written, and since
// when.
func TestStorageProblem(t *testing.T) {
	full := errors.New("no space left on device")
	c := surface.NewClock()
	coord, device := newCoordinatorPage(c.Now), newAgentPage("press", c.Now)
	for _, tt := range []struct {
		tell            func(event observe.Event)
		picture         func() status.DrawableStatus
		failing, mended observe.Event
	}{
		{func(f observe.Event) { coord.Observe(f) }, coord.Status,
			host.StorageFailing{Operation: "save the model", Err: full}, host.StorageRecovered{}},
		{func(f observe.Event) { device.Observe(f) }, device.Status,
			host.StorageFailing{Operation: "save the model", Err: full}, host.StorageRecovered{}},
	} {
		tt.tell(tt.failing)
		const want = "cannot save the model: no space left on device (since 2026-03-01 12:00:00); make state_dir"
		if got := tt.picture().Draw(200); !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %s", got, want)
		}
		tt.tell(tt.mended)
		if got := tt.picture().Draw(200); strings.Contains(got, "state_dir") {
			t.Errorf("when it is mended:\n%s", got)
		}
	}
}

// TestWaits checks that the page shows the conditions that must be met before the next round, until the coordinator
// enters another phase.
func TestWaits(t *testing.T) {
	c := surface.NewClock()
	v := newCoordinatorPage(c.Now)
	v.Observe(round.PhaseEntered{Phase: round.CoordinatorIdle})
	for want, f := range map[string]round.ScheduleWait{
		"waiting for the next time window, which opens on Fri 06:00 UTC, in 3h12m\n": {Reason: round.WaitForWindow,
			WindowOpensAt: time.Date(2026, 3, 6, 6, 0, 0, 0, time.UTC)},
		"waiting for new rows: 3 of 5 required agents have at least 100 unused rows\n": {Reason: round.WaitForNewRows,
			AgentsWithNewRows: 3,
			RequiredAgents:    5, RequiredNewRows: 100},
		"have at least 100 unused rows; 2 agents have not reported": {Reason: round.WaitForNewRows,
			RequiredAgents: 5, RequiredNewRows: 100, AgentsWithoutRowCount: 2},
	} {
		c.Time = time.Date(2026, 3, 6, 2, 48, 0, 0, time.UTC)
		v.Observe(f)
		if got := v.Status().Draw(120); !strings.Contains(got, want) {
			t.Errorf("%s\nwant %q", got, want)
		}
	}
	v.Observe(round.PhaseEntered{Phase: round.CoordinatorGathering})
	if got := v.Status().Draw(120); strings.Contains(got, "waits") {
		t.Error(got)
	}
}

// agentPage is the status tracker of an agent together with its condition board. The tracker and the board receive all
// events.
type agentPage struct {
	*agentstatus.StatusTracker
	all observe.Observers
}

func newAgentPage(id string, now func() time.Time) agentPage {
	b := status.NewBoard(now, nil)
	v := agentstatus.New("v0.1.0", "air", id, now, b)
	return agentPage{v, observe.Observers{surface.BoardObserver{ConditionBoard: b}, v}}
}

func (p agentPage) Observe(e observe.Event) { p.all.Observe(e) }

// coordinatorPage is the status tracker of a coordinator together with its condition board. The tracker and the board
// receive all events.
type coordinatorPage struct {
	*coordinatorstatus.StatusTracker
	all observe.Observers
}

func newCoordinatorPage(now func() time.Time) coordinatorPage {
	b := status.NewBoard(now, nil)
	v := coordinatorstatus.New("v0.1.0", "air", now, b)
	return coordinatorPage{v, observe.Observers{surface.BoardObserver{ConditionBoard: b}, v}}
}

func (p coordinatorPage) Observe(e observe.Event) { p.all.Observe(e) }
