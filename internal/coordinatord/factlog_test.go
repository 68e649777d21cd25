package coordinatord

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

var one, two = wire.ModelName{Run: 7, Version: 1}, wire.ModelName{Run: 6, Version: 2}

// coordinatorLines are the same of a coordinator.
var coordinatorLines = []surface.EventLine{
	{Event: coordinator.LinkChanged{Err: errors.New("gone")}, WantLog: ""}, // the session says it
	{Event: coordinator.SubscriptionsRefused{Filters: []string{"s/+"}},
		WantLog: "<3>ERROR the broker refuses subscriptions that this program needs, and is asked again: " +
			mqtt.RefusalCauses + " topics=[s/+]"},
	{Event: coordinator.CloneSeen{Agent: "a1", BootEpochs: [2]wire.Epoch{5, 5}, Nonces: [2]uint64{0xab, 0xcd}},
		WantLog: `<3>ERROR two devices use the identity of one agent: give one of them an id and a key of its own agent=a1 starts="5 (00000000000000ab) and 5 (00000000000000cd)"`},
	{Event: coordinator.AgentRejected{Agent: "a1", Reason: wire.RejectedBehind},
		WantLog: "<4>WARN  messages of a device are rejected agent=a1 reason=counter_behind " +
			`do="if its state folder was lost: coordinator devices reset a1"`},
	{Event: coordinator.AgentRejected{Agent: "a1", Reason: wire.RejectedUnlisted},
		WantLog: "<4>WARN  messages of a device are rejected agent=a1 reason=unlisted " +
			`do="add its id and public key to identity.agents_file, and reload"`},
	{Event: coordinator.MachineStarted{Epoch: 1, AggregationRule: "trimmed_mean", ServerOptimizer: "none"},
		WantLog: "<6>INFO  rounds begin rule=trimmed_mean server_optimizer=none"},
	{Event: coordinator.MachineStarted{Epoch: 2, EpochRaised: true, AggregationRule: "mean",
		ServerOptimizer: "fedavgm"},
		WantLog: "<6>INFO  rounds begin rule=mean server_optimizer=fedavgm\n" +
			"<6>INFO  the epoch is raised: agents obey this coordinator, even if another one has " +
			"announced a later round epoch=2"},
	{
		Event: coordinator.ForeignAnnouncementSeen{
			Foreign: wire.AnnouncementPosition{Epoch: 1, Run: 7, Round: 2, Attempt: 1, Phase: wire.PhaseOpen},
			Own:     wire.AnnouncementPosition{Epoch: 1, Run: 7, Round: 3, Attempt: 1, Phase: wire.PhaseOpen},
		},
		WantLog: "<3>ERROR an announcement is signed with this coordinator's key, but this coordinator did not " +
			"make it: " +
			"another coordinator runs with the key and a copy of the state folder, " +
			`or somebody replays an old message; stop the other coordinator foreign="epoch 1 run 7 round 2 attempt 1 open" own="epoch 1 run 7 round 3 attempt 1 open"`},
	{Event: coordinator.ForeignMessagesDeleted{DeletedTopics: 3, ExampleTopic: "fl/v1/plant/u/0/plant-a1/7f/0",
		Agents: []wire.AgentID{"a1"}},
		WantLog: "<4>WARN  messages that nobody reads were retained at the broker, and are deleted: a device, or a " +
			"stranger " +
			"at a broker that anybody may use, fills it topics=3 example=fl/v1/plant/u/0/plant-a1/7f/0 agents=[a1]"},
	{Event: coordinator.AgentsAhead{Agents: 3, NewestRun: 7, NewestRound: 20},
		WantLog: "<4>WARN  agents are ahead of this coordinator and do not obey it: another coordinator leads " +
			"them, or " +
			"this state folder is an older copy; to continue from this copy, stop the coordinator and run " +
			"`coordinator restore` agents=3 run=7 round=20"},
	{Event: coordinator.AgentsAhead{}, WantLog: `<6>INFO  no agent is ahead of this coordinator any more`},
	{Event: coordinator.MessageDropped{Kind: mqtt.KindStatus, Agent: "a", Reason: coordinator.DropUnknown,
		Err: errors.New("not in the list")},
		WantLog: `<4>WARN  message dropped kind=status agent=a reason=unknown_agent err="not in the list"`},
	{Event: coordinator.StateFileRecovered{File: coordinator.StateModel, Damage: errors.New("torn"),
		MovedTo:         "m.aside-1",
		PreviousVersion: 8, Version: 7},
		WantLog: `<3>ERROR the run's model is lost, so the run continues from an older one; check the disk file=model damage=torn moved_to=m.aside-1 lost_version=8 version=7`},
	{Event: coordinator.StateFileRecovered{File: coordinator.StateModel, Damage: errors.New("torn"), PreviousVersion: 8,
		Version: 9},
		WantLog: `<3>ERROR the run's model and all older ones are lost, so the run continues from a newer one; check the disk file=model damage=torn lost_version=8 version=9`},
	{Event: coordinator.StateFileRecovered{File: coordinator.StateTask, Damage: errors.New("torn")},
		WantLog: `<3>ERROR a file of the state folder was damaged or missing; its content was recovered, nothing is lost; check the disk file=task damage=torn`},
	{Event: coordinator.ModelsNewerThanJournal{JournalVersion: 7, Newest: 12},
		WantLog: "<4>WARN  models on disk are newer than the journal `run`, which may have been restored from an " +
			"older " +
			"copy; the models are kept: `coordinator run --from VERSION` begins a run from one of them " +
			"journal_version=7 newest_version=12"},
	{Event: coordinator.StatisticsReady{Rows: 7603, Columns: 22}, WantLog: `<6>INFO  columns standardised rows=7603 columns=22`},
	{Event: coordinator.StatisticsReady{Rows: 7603, Columns: 22, ConstantColumns: []string{"lat"}},
		WantLog: "<6>INFO  columns standardised rows=7603 columns=22\n" +
			`<4>WARN  column is constant on all devices and is not scaled: remove it from task.features, or, if it ` +
			`should vary, subtract a constant from it column=lat`},
	{Event: coordinator.StatisticsReady{Rows: 7603, Columns: 22,
		DistantDataAgents: []coordinator.DistantDataAgent{{Agent: "a1", Column: "temp", DeviationsFromMean: 123456}}},
		WantLog: "<6>INFO  columns standardised rows=7603 columns=22\n" +
			`<4>WARN  an agent's data lie far from the others': another unit, a broken sensor, or false data; the standardisation disregards them ` +
			`agent=a1 column=temp deviations=123500`},
	{Event: coordinator.UpdateLeftOut{Round: 7, Agent: "a1", Reason: coordinator.LeftOutRisk, Norm: 2e30,
		UsualNorm: 0.51234},
		WantLog: `<4>WARN  an update is left out of the model: its device is broken or dishonest, or its data differ much from the others' ` +
			`round=7 agent=a1 reason=risk norm=2e+30 usual=0.5123`},
	{Event: coordinator.RepeatedLargeUpdates{Round: 7, Agent: "a1", ConsecutiveUpdates: 3, SinceVersion: 4, Norm: 30,
		UsualNorm:   1,
		CountedNorm: 3},
		WantLog: `<4>WARN  unusually large updates: the device has unusual data or is dishonest agent=a1 round=7 in_a_row=3 ` +
			`norm=30 usual=1 counted=3 undo="coordinator model rollback --to 4"`},
	{Event: coordinator.RepeatedLargeUpdates{Round: 8, Agent: "a1", ConsecutiveUpdates: 5, SinceVersion: 4, Norm: 30,
		UsualNorm:   1,
		CountedNorm: 3},
		WantLog: ""},
	{Event: coordinator.RepeatedLargeUpdates{Round: 9, Agent: "a1", UsualNorm: 1},
		WantLog: `<6>INFO  updates are as large as usual again agent=a1 round=9`},
	{Event: coordinator.ModelRejected{Round: 7, Version: 6, EarlierVersion: 5, NextVersion: 7, MedianReportedRisk: 2e30,
		Agents: []wire.AgentID{"a1"}},
		WantLog: "<4>WARN  model rejected: it has diverged; check the devices named here, or lower the step size if " +
			"they are honest version=6 continues_from=5 as=7 median_risk=2e+30 agents=[a1] round=7"},
	{Event: coordinator.UpdatesClipped{Round: 7, Reason: coordinator.ClippedRadius, Agents: []wire.AgentID{"a1", "a2"},
		LongestNorm: 2.5, MaxNorm: 0.3},
		WantLog: "<6>INFO  updates count as if they were no longer than allowed round=7 reason=radius " +
			"agents=\"[a1 a2]\" longest=2.5 most=0.3"},
	{Event: coordinator.UpdatesExcludedByRule{Round: 7, Rule: "krum", Agents: []wire.AgentID{"a1", "a2"}},
		WantLog: "<6>INFO  the rule has left updates out, as it does in each round round=7 rule=krum " +
			"agents=\"[a1 a2]\""},
	{Event: coordinator.ModelReady{Round: 2, Version: 1, Hash: wire.Digest{1}, MeanReportedRisk: 0.53099,
		HeldOutScore: &learner.Score{R2: 0.58875, Accuracy: math.NaN()}},
		WantLog: `<6>INFO  model ready version=1 hash=01000000000000000000000000000000 risk=0.531 r2=0.5888`},
	{Event: coordinator.ModelReady{Round: 2, Version: 1, MeanReportedRisk: math.NaN(),
		HeldOutScore: &learner.Score{R2: math.NaN(), Accuracy: 0.75}},
		WantLog: `<6>INFO  model ready version=1 hash=00000000000000000000000000000000 accuracy=0.75`},
	{Event: coordinator.ModelReady{Version: 1, MeanReportedRisk: 12345.6},
		WantLog: `<6>INFO  model ready version=1 hash=00000000000000000000000000000000 risk=12350`},
	{Event: coordinator.UploadStatusChanged{Receiving: 1}, WantLog: ""},
	{Event: coordinator.RetainedBlobChecked{Blob: wire.Digest{1}, Parts: 3, CheckDuration: time.Second},
		WantLog: `<7>DEBUG the broker returns the whole blob blob=01000000000000000000000000000000 parts=3 took=1s`},
	{Event: coordinator.RetainedBlobChecked{Blob: wire.Digest{1}, Parts: 3, Missing: 2, RepublishDelay: time.Second},
		WantLog: `<3>ERROR the broker does not return all parts of a blob, so agents have to ask for them: let it retain messages of 64 KiB, ` +
			`as many as there are parts, and let the coordinator read and write m/# blob=01000000000000000000000000000000 parts=3 missing=2 again_in=1s`},
	{Event: coordinator.RetainedBlobChecked{Blob: wire.Digest{1}, Parts: 3, Missing: 3, ReadRefused: true,
		RepublishDelay: time.Second},
		WantLog: `<3>ERROR the broker does not let the coordinator read a blob back, so nobody knows whether agents can: let the coordinator ` +
			`read and write m/# (` + "`coordinator acl`" + ` writes the rules for Mosquitto) blob=01000000000000000000000000000000 parts=3 missing=3 again_in=1s`},
	{Event: round.PhaseEntered{}, WantLog: ""},
	{Event: round.AgentEligible{Agent: "a", Samples: 712, EligibleAgents: 3}, WantLog: `<6>INFO  agent present agent=a rows=712 agents=3`},
	{Event: round.AgentUnfit{Agent: "a", Reason: wire.DeclineBadData},
		WantLog: `<4>WARN  agent cannot do the task agent=a reason=bad_data`},
	{Event: round.AgentUnfit{Agent: "a", Reason: wire.DeclineBadData, DataProblem: wire.DataProblem{Column: "pm25",
		Reason: "out_of_range", ExampleLocation: "a.csv: line 12", UnusableValues: 30, TotalValues: 100}},
		WantLog: `<4>WARN  agent cannot do the task agent=a reason=bad_data column=pm25 why=out_of_range bad=30 of=100 ` +
			`where="a.csv: line 12"`},
	{Event: round.AgentUnfit{Agent: "a", Reason: wire.DeclineBadData, DataProblem: wire.DataProblem{Column: "pm25",
		ExampleLocation: "a.csv: line 1"}}, // the column is missing
		WantLog: `<4>WARN  agent cannot do the task agent=a reason=bad_data column=pm25 where="a.csv: line 1"`},
	{Event: round.AgentLeft{Agent: "a", Reason: round.LeftLost, EligibleAgents: 2},
		WantLog: `<6>INFO  agent left agent=a reason=lost agents=2`},
	{Event: round.AgentSidelined{Agent: "a", Round: 2, Reason: round.SidelinedSilent, DrawsSatOut: 4,
		LastSidelinedRound: 6,
		EligibleAgents:     2},
		WantLog: `<4>WARN  agent failed in the round and sits out the next draws agent=a round=2 reason=silent draws=4 until_round=6 agents=2`},
	{Event: round.AgentReadmitted{Agent: "a", Round: 7, EligibleAgents: 3},
		WantLog: `<6>INFO  agent may be drawn again agent=a round=7 agents=3`},
	{Event: round.AgentReadmitted{Agent: "a", Round: 5, ReadmittedEarly: true, EligibleAgents: 3},
		WantLog: `<4>WARN  agent may be drawn again early, because too few others are present agent=a round=5 agents=3`},
	{Event: round.RowCountsTooLarge{Round: 2, Agents: []wire.AgentID{"a", "b"}, RowLimit: 1000},
		WantLog: `<4>WARN  agents report more than five times the median number of rows ` +
			`round=2 agents="[a b]" rows=1000 weights_capped=false`},
	{Event: round.GatheringExtended{PresentAgents: 2, Minimum: 3},
		WantLog: `<4>WARN  too few agents to begin a round; waiting for more agents=2 minimum=3`},
	{Event: round.RoundOpened{Round: 2, Attempt: 1, Kind: wire.KindTraining, EligibleAgents: 3,
		Participants: []wire.AgentID{"a", "b"}},
		WantLog: `<6>INFO  round opened round=2 attempt=1 kind=training agents=3 participants=2`},
	{Event: round.AgentJoined{Agent: "a", Round: 2}, WantLog: ""},
	{Event: round.AgentDeclined{Agent: "a", Round: 2, Reason: wire.DeclineNoTime},
		WantLog: `<4>WARN  agent declined round=2 agent=a reason=no_time`},
	{Event: round.UpdateAccepted{Agent: "a", Round: 2, Update: wire.Update{LocalSteps: 20}, Norm: 0.123456,
		SinceAnnouncement: time.Second},
		WantLog: `<7>DEBUG update accepted round=2 agent=a local_steps=20 norm=0.1235 after=1s`},
	{Event: round.UpdateRefused{Agent: "a", Round: 2, Reason: wire.RefuseNorm},
		WantLog: `<4>WARN  update refused round=2 agent=a reason=norm`},
	{Event: round.RoundClosed{Round: 2, Kind: wire.KindTraining, Version: 1, Selected: 3, Accepted: 2,
		Missing: []wire.AgentID{"c"}, RoundDuration: 1500 * time.Millisecond},
		WantLog: `<6>INFO  round closed round=2 kind=training accepted=2 selected=3 took=1.5s version=1 missing=[c]`},
	{Event: round.RoundClosed{Round: 1, Kind: wire.KindStatistics, Selected: 3, Accepted: 3,
		RoundDuration: time.Second},
		WantLog: `<6>INFO  round closed round=1 kind=statistics accepted=3 selected=3 took=1s`},
	{Event: round.RoundAbandoned{Round: 2, Reason: round.AbandonQuorum, Accepted: 1, Selected: 3,
		Missing: []wire.AgentID{"b", "c"}, RoundDuration: time.Minute},
		WantLog: `<4>WARN  round abandoned round=2 reason=quorum accepted=1 selected=3 took=1m0s missing="[b c]"`},
	{Event: round.RoundAbandoned{Round: 2, Reason: round.AbandonFold, Err: errors.New("not finite"),
		RoundDuration: time.Minute},
		WantLog: `<4>WARN  round abandoned round=2 reason=fold accepted=0 selected=0 took=1m0s err="not finite"`},
	{Event: round.ScheduleWait{Reason: round.WaitNewRows, AgentsWithNewRows: 1, RequiredAgents: 3, RequiredNewRows: 10,
		WithoutRowCount: 2},
		WantLog: `<6>INFO  the next round waits until enough agents have new rows agents=1 wanted=3 rows=10 agents_without_row_count=2`},
	{Event: round.ScheduleWait{Reason: round.WaitWindow, WindowOpensAt: time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC)},
		WantLog: `<6>INFO  rounds rest until the next window of round.schedule opens=2026-03-01T22:00:00Z`},
	{Event: round.RunFinished{Version: 50, Reason: stop.Patience},
		WantLog: `<6>INFO  run finished version=50 reason=patience to_continue="coordinator task set KEY=VALUE"`},
	{Event: round.RolloutBegan{Candidate: one, Released: two, TrialAgents: 4, MinDecidingAgents: 3},
		WantLog: `<6>INFO  a model is rolled out to a share of the agents model=7/1 released=6/2 agents=4`},
	{Event: round.RolloutBegan{Candidate: one, Released: two, TrialAgents: 2, MinDecidingAgents: 3},
		WantLog: `<4>WARN  a model is rolled out to fewer agents than predict.devices, which decide; it is withdrawn ` +
			`unless more come: raise predict.rollout model=7/1 released=6/2 agents=2 predict.devices=3`},
	{Event: round.RolloutBegan{Candidate: one, Released: two, Resumed: true},
		WantLog: `<6>INFO  agents are told which model to predict with model=7/1 released=6/2`},
	{Event: round.RolloutEnded{Candidate: one, Released: one, Verdict: rollout.Verdict{Result: rollout.First}},
		WantLog: `<6>INFO  the first model is released to all agents model=7/1`},
	{Event: round.RolloutEnded{Candidate: one, Released: one,
		Verdict: rollout.Verdict{Result: rollout.Widened, Agents: 5, VotingAgents: 4, MedianErrorRatio: 0.75}},
		WantLog: `<6>INFO  a model is released to all agents model=7/1 agents=5 judged=4 residuals_ratio=0.75`},
	{Event: round.RolloutEnded{Candidate: one, Released: two,
		Verdict: rollout.Verdict{Result: rollout.Worse, Agents: 5, VotingAgents: 4, MedianErrorRatio: math.Inf(1)}},
		WantLog: `<3>ERROR a model is withdrawn: its residuals are larger than those of the released one, or most agents ` +
			`refuse it; agents predict with the released one until a newer model is better model=7/1 agents=5 ` +
			`judged=4 residuals_ratio=+Inf released=6/2`},
	{Event: round.RolloutEnded{Candidate: one, Released: two,
		Verdict: rollout.Verdict{Result: rollout.NoReports, Agents: 1, MedianErrorRatio: math.NaN()}},
		WantLog: `<4>WARN  a model is withdrawn: too few agents have judged it in time; agents predict with the released ` +
			`one model=7/1 agents=1 judged=0 residuals_ratio=NaN released=6/2`},
}

func TestCoordinatorLog(t *testing.T) {
	surface.CompareLines(t, coordinatorLines, func(w io.Writer, fact any) {
		log, err := logging.New(w, surface.DebugLogOptions())
		if err != nil {
			t.Fatal(err)
		}
		testkit.NotifyObserver(coordinatorLog{log, &riskMonitor{}}, fact)
	})
}

// TestExplosionIsTold: a model that is much worse than those before is told once, until models are good again.
func TestExplosionIsTold(t *testing.T) {
	unknown := math.NaN()
	var b strings.Builder
	log, err := logging.New(&b, surface.DebugLogOptions())
	if err != nil {
		t.Fatal(err)
	}
	l := coordinatorLog{log, &riskMonitor{}}
	for k, x := range []struct {
		risk float64
		held bool
		want bool
	}{
		{unknown, false, false}, {4, true, false}, {0.2, true, false},
		{3.9, true, false}, // over ten times, and not worse than at first
		{1e58, true, true}, {1e59, true, false}, {math.Inf(1), true, false}, {0.3, true, false}, {5, true, true},
	} {
		before := strings.Count(b.String(), "much worse")
		f := coordinator.ModelReady{Version: wire.ModelVersion(k), MeanReportedRisk: unknown, MedianRisk: x.risk}
		if x.held {
			f.MedianRisk, f.HeldOutScore = unknown, &learner.Score{Risk: x.risk, R2: unknown, Accuracy: unknown}
		}
		l.Observe(f)
		if told := strings.Count(b.String(), "much worse") > before; told != x.want {
			t.Errorf("model %d, of risk %v: told %t", k, x.risk, told)
		}
	}
	l.Observe(coordinator.ModelReady{Version: 1, MeanReportedRisk: 1, MedianRisk: 100}) // of another run
	if got := strings.Count(b.String(), "much worse"); got != 2 ||
		!strings.Contains(b.String(), "of=\"held-out data\"") {
		t.Errorf("told %d times:\n%s", got, &b)
	}
}

// TestEnrolLogWithoutError: a refusal without an error has no attribute err.
func TestEnrolLogWithoutError(t *testing.T) {
	var b strings.Builder
	log, err := logging.New(&b, surface.DebugLogOptions())
	if err != nil {
		t.Fatal(err)
	}
	enrolLog{log}.ObserveEnrolment(enrol.JoinRefused{Agent: "a", From: "127.0.0.1", Reason: 1})
	enrolLog{log}.ObserveEnrolment(enrol.RenewRefused{Agent: "a", Reason: 1})
	if text := b.String(); strings.Contains(text, "err=") || strings.Count(text, "\n") != 2 {
		t.Errorf("%s", text)
	}
}
