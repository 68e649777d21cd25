package daemon

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// line is a fact and what a person reads of it, after journald's priority; ""
// if nothing.
type line struct {
	fact any
	want string
}

func compareLines(t *testing.T, lines []line, observe func(w io.Writer, fact any)) {
	t.Helper()
	for _, tt := range lines {
		var b strings.Builder
		observe(&b, tt.fact)
		got := b.String()
		if tt.want != "" {
			tt.want += "\n"
		}
		if got != tt.want {
			t.Errorf("%T\ngives %q\nwant  %q", tt.fact, got, tt.want)
		}
	}
}

// debugging returns options with everything logged and without times, as under
// systemd.
func debugging() logging.Options {
	return logging.Options{Level: "debug", Format: "text", Journal: true}
}

// agentLines are facts of an agent, each with its line in the log; "" if it has none.
var agentLines = []line{
	{agent.LinkChanged{Up: true}, ""}, // the session says it
	{agent.SubscriptionsRefused{Filters: []string{"d/a"}, Site: []string{"b/hall/+"}},
		"<3>ERROR the broker refuses subscriptions that this program needs, and is asked again: either its " +
			"access rules do not let this user read the topic " +
			"(coordinator acl writes rules for Mosquitto), or it is a node of a cluster that has lost its peers " +
			"(see its log, and give all nodes in broker.url) " +
			`topics="[d/a b/hall/+]"`},
	{agent.SubscriptionsRefused{}, `<6>INFO  the broker accepts all subscriptions`},
	{agent.BrokerTested{SelfTested: mqtt.SelfTested{Result: mqtt.SelfTestPassed, Topic: "s/a/loop", Bytes: 61504}},
		`<7>DEBUG the broker carries the largest messages bytes=61504`},
	{agent.BrokerTested{SelfTested: mqtt.SelfTested{Result: mqtt.SelfTestDenied, Topic: "s/a/loop", Bytes: 61504}},
		"<3>ERROR the broker's access rules withhold messages from this user (a test message to s/a/loop did not " +
			"come back): load the federation's access rules (Mosquitto: copy the file of the coordinator's key " +
			"enrol.acl, or the output of `coordinator acl`, to its acl_file, and run `systemctl reload mosquitto`); " +
			"they must have `topic readwrite s/a/loop` for this user"},
	{agent.AnnouncementMissing{Reason: agent.MissingAccess, Federation: "air"}, ""}, // the line above says it
	{agent.AnnouncementMissing{Reason: agent.MissingNone, Federation: "air"},
		"<4>WARN  the broker has no announcement of federation air: start the coordinator; if it runs, compare " +
			"federation, broker.prefix and broker.url in agentd.yaml and coordinator.yaml"},
	{agent.AnnouncementMissing{Reason: agent.MissingFederation, Federation: "air", Others: []wire.Federation{"airs"}},
		"<3>ERROR the coordinator with the configured key announces federation airs, but agentd.yaml has federation: " +
			"air: set federation: airs in agentd.yaml and restart agentd"},
	{agent.AnnouncementMissing{Federation: "air"}, "<6>INFO  the coordinator's announcement has arrived"},
	{round.BudgetShort{Round: 2, Bytes: 90_000, Left: 80_000},
		`<4>WARN  the rest of the month's byte budget is too small for a round round=2 bytes=90000 left=80000`},
	{agent.DeviceJudged{Verdict: device.Verdict{Share: 1, Rule: device.None}}, ""},
	{agent.DeviceJudged{Verdict: device.Verdict{Rule: device.Temperature}},
		`<6>INFO  a rule for this device stops its work rule=temperature`},
	{agent.DeviceJudged{Verdict: device.Verdict{Rule: device.Temperature},
		Before: device.Verdict{Rule: device.Temperature}}, ""},
	{agent.DeviceJudged{Verdict: device.Verdict{Share: 0.5, Rule: device.Load},
		Before: device.Verdict{Rule: device.Temperature}},
		`<6>INFO  the rules for this device allow work again share_of_local_steps=0.5`},
	{agent.CloneSeen{Boot: 5, Nonce: 0xab, OtherBoot: 4, OtherNonce: 0xcd},
		`<3>ERROR another device has the identity of this agent: give one of them an id and a key of its own; this one stays connected ` +
			`starts="5 (00000000000000ab, here) and 4 (00000000000000cd)"`},
	{agent.CloneSeen{Boot: 5, Nonce: 0xab, OtherBoot: 6, OtherNonce: 0xcd, Pause: 72345 * time.Millisecond},
		`<3>ERROR another device has the identity of this agent: give one of them an id and a key of its own; this one disconnects for 1m12s ` +
			`starts="5 (00000000000000ab, here) and 6 (00000000000000cd)"`},
	{agent.Unheard{Reason: wire.UnheardBehind},
		"<3>ERROR the coordinator does not hear this device: its counter of starts is behind, as when the state " +
			"folder was lost; run `coordinator devices reset ID` at the coordinator reason=counter_behind"},
	{agent.AnnouncementsStale{For: time.Minute},
		"<3>ERROR a round is open, but no new announcement has arrived for 1m0s (three times the maximum duration of " +
			"a round): the coordinator is offline, or the broker withholds its announcements; see coordinator status"},
	{agent.AnnouncementsStale{}, `<6>INFO  announcements arrive again`},
	{agent.CertificateUsed{Until: time.Unix(1_790_000_000, 0)}, ""},
	{agent.PersonalBegun{Round: 7, Parameters: 198},
		"<6>INFO  what of the model is the device's own begins anew round=7 parameters=198"},
	{agent.PersonalBegun{Round: 7, Parameters: 198, Err: errors.New("the risk is NaN")},
		"<4>WARN  the local steps of the device's own model have diverged, and it begins anew: see " +
			"task.personal.lambda and task.step_size round=7 parameters=198 err=\"the risk is NaN\""},
	{agent.CertificateUsed{Until: time.Unix(1_790_000_000, 0), Renewed: true},
		"<6>INFO  the certificate for the broker is another one: the next connection uses it " +
			"expires=\"2026-09-21 14:13:20\""},
	{agent.CertificateEnding{Until: time.Unix(1_790_000_000, 0), Left: 100 * time.Hour},
		"<4>WARN  the certificate for the broker expires in 4 days: the coordinator has not answered; see that it " +
			"runs, and that this device reaches it; a certificate of another authority must be renewed manually " +
			"expires=\"2026-09-21 14:13:20\""},
	{agent.CertificateEnding{Until: time.Unix(1_790_000_000, 0), Left: -time.Hour, Refused: wire.RenewFailed},
		"<4>WARN  the certificate for the broker has expired: the coordinator refuses another one: it could not " +
			"store it (its log says why); a certificate of another authority must be renewed manually " +
			"expires=\"2026-09-21 14:13:20\""},
	{agent.RenewalRefused{Reason: wire.RenewOther},
		"<3>ERROR the coordinator gives this device no other key or certificate: the new key is in its list under " +
			"another device's name reason=other_device"},
	{agent.Rekeyed{}, "<4>WARN  this device has another key from now on; it is kept in the state folder " +
		`key="AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="`},
	{agent.ClockBehind{Machine: time.Unix(12, 0), Using: time.Unix(1_790_000_000, 0)},
		"<4>WARN  clock is behind: using 2026-09-21 14:13:20 UTC for certificates, as the coordinator has " +
			"signed or this program was built, since the machine says 1970-01-01 00:00:12; set it, and keep it right " +
			"with NTP"},
	{agent.ClockBehind{Machine: time.Unix(1_790_000_000, 0)}, `<6>INFO  the machine's clock is right again`},
	{agent.RootTaken{Version: 2}, `<6>INFO  the next root document is taken: its keys count now version=2`},
	{agent.Unheard{}, `<6>INFO  the coordinator hears this device again`},
	{agent.MessageDropped{Kind: mqtt.KindRound, Reason: agent.DropSignature, Err: errors.New("wrong key")},
		`<4>WARN  message dropped kind=round reason=bad_signature err="wrong key"`},
	{agent.DataLoaded{Task: "air", Rows: 712, Took: 12345 * time.Microsecond},
		`<6>INFO  local data fit the task task=air rows=712 took=12.35ms`},
	{agent.DataLoaded{Task: "air", Rows: 715, Before: 712, Took: 2 * time.Millisecond},
		`<6>INFO  local data have grown task=air rows=715 before=712 took=2ms`},
	{agent.DataLoaded{Task: "air", Rows: 15, Before: 712, Renewed: "a.csv: cut off", Took: 2 * time.Millisecond},
		`<4>WARN  local data have changed: a.csv: cut off task=air rows=15 before=712 took=2ms`},
	{agent.DataLoaded{Task: "air", Rows: 1, Renewed: "a.csv: cut off", Problem: errors.New("too few")},
		`<3>ERROR the local data fit the task no more; the agent takes no part in it: a.csv: cut off task=air err="too few"`},
	{agent.DataLoaded{Task: "air",
		Problem: &data.Error{File: "a.csv", Line: 3, Column: "y", Problem: "empty"}},
		`<3>ERROR the local data do not fit the task; the agent takes no part in it task=air err="a.csv: line 3: column \"y\": empty"`},
	{agent.DataCollected{Report: data.Report{Columns: []data.ColumnReport{{Name: "pm25", Used: 30,
		Unused: map[data.Reason]uint64{grid.OutOfRange: 4}, Where: "a.csv: line 9"}}}},
		`<4>WARN  values of an input are not used input=pm25 reason=out_of_range values=4 used=30 last="a.csv: line 9"`},
	{agent.DataCollected{Report: data.Report{Columns: []data.ColumnReport{{Name: "pm25", Used: 30,
		Unused: map[data.Reason]uint64{grid.OutOfRange: 4}, Where: "line 9",
		Problem: "the value is absent, null or empty",
		Last:    map[data.Reason]data.Example{grid.OutOfRange: {Where: "line 7", Problem: "2000 is out of range"}}}}}},
		`<4>WARN  values of an input are not used input=pm25 reason=out_of_range values=4 used=30 last="line 7" ` +
			`problem="2000 is out of range"`},
	{agent.DataCollected{Report: data.Report{Columns: []data.ColumnReport{{Name: "pm25",
		Unused: map[data.Reason]uint64{grid.OutOfRange: 9}}}},
		Before: data.Report{Columns: []data.ColumnReport{{Name: "pm25",
			Unused: map[data.Reason]uint64{grid.OutOfRange: 4}}}}}, ""},
	{agent.DataCollected{Report: data.Report{Columns: []data.ColumnReport{{Name: "pm25", Used: 70,
		Unused: map[data.Reason]uint64{grid.OutOfRange: 10}}}},
		Before: data.Report{Columns: []data.ColumnReport{{Name: "pm25",
			Unused: map[data.Reason]uint64{grid.OutOfRange: 9}}}}},
		`<4>WARN  values of an input are not used input=pm25 reason=out_of_range values=10 used=70 last=""`},
	{agent.Trained{Round: 4, Version: 3, LocalSteps: 20, Sizing: learner.ByBudget, StepTime: 4 * time.Millisecond,
		RiskBefore: 0.512345, RiskAfter: 0.1234, Took: 80 * time.Millisecond},
		`<6>INFO  trained round=4 local_steps=20 because=budget step_time=4ms risk_before=0.5123 risk_after=0.1234 took=80ms`},
	{agent.Trained{Round: 4, Sizing: learner.ByBudget, Waited: time.Second},
		`<6>INFO  trained round=4 local_steps=0 because=budget step_time=0s risk_before=0 risk_after=0 took=0s waited_for_others=1s`},
	{agent.TurnAwaited{By: "power"}, `<7>DEBUG training waits: the device trains for another federation for=power`},
	{agent.TurnAwaited{Waited: time.Second}, ""},
	{agent.TrainingFailed{Round: 4, Err: errors.New("diverged")},
		`<3>ERROR no update for this round round=4 err=diverged`},
	{agent.ModelFetched{Version: 3, Bytes: 88}, ""},
	{agent.StorageFailing{What: "save the update", Err: errors.New("no space left")},
		`<3>ERROR cannot save the update; trying again until it succeeds err="no space left"`},
	{agent.StorageMended{}, `<6>INFO  the state folder can be written again`},
	{round.AnnouncementIgnored{Order: wire.Order{Epoch: 1, Run: 2, Round: 3, Attempt: 1, Phase: wire.PhaseOpen},
		Reason: round.IgnoredOlder},
		`<4>WARN  announcement ignored place="epoch 1 run 2 round 3 attempt 1 open" reason=older`},
	{round.NotUnderstood{Message: wire.TypeInvitation, Err: errors.New("section x: not known")},
		"<4>WARN  this agent takes no part: it does not know what the coordinator's message needs; update the " +
			"agent " +
			`message=invitation err="section x: not known"`},
	{round.WorkStarted{Round: 4, Kind: wire.KindTraining, Left: time.Minute},
		`<7>DEBUG invited round=4 kind=training left=1m0s`},
	{round.WorkEnded{Round: 4, Kind: wire.KindTraining, Result: round.WorkAccepted},
		`<6>INFO  round ended round=4 kind=training result=accepted`},
	{round.WorkEnded{Round: 4, Kind: wire.KindTraining, Result: round.WorkRefused, Refused: wire.RefuseNotFinite},
		`<4>WARN  round ended round=4 kind=training result=refused reason=not_finite`},
	{round.WorkEnded{Round: 4, Kind: wire.KindStatistics, Result: round.WorkDeclined, Declined: wire.DeclineNoTime},
		`<4>WARN  round ended round=4 kind=statistics result=declined reason=no_time`},
	{round.WorkEnded{Round: 4, Kind: wire.KindTraining, Result: round.WorkSuperseded},
		`<6>INFO  round ended round=4 kind=training result=superseded`},
}

func TestAgentLog(t *testing.T) {
	compareLines(t, agentLines, func(w io.Writer, fact any) {
		log, err := logging.New(w, debugging())
		if err != nil {
			t.Fatal(err)
		}
		testkit.Tell(agentLog{log}, fact)
	})
}

var one, two = wire.ModelName{Run: 7, Version: 1}, wire.ModelName{Run: 6, Version: 2}

// coordinatorLines are the same of a coordinator.
var coordinatorLines = []line{
	{coordinator.LinkChanged{Err: errors.New("gone")}, ""}, // the session says it
	{coordinator.SubscriptionsRefused{Filters: []string{"s/+"}},
		"<3>ERROR the broker refuses subscriptions that this program needs, and is asked again: " +
			mqtt.RefusalCauses + " topics=[s/+]"},
	{coordinator.CloneSeen{Agent: "a1", Boots: [2]wire.Epoch{5, 5}, Nonces: [2]uint64{0xab, 0xcd}},
		`<3>ERROR two devices use the identity of one agent: give one of them an id and a key of its own agent=a1 starts="5 (00000000000000ab) and 5 (00000000000000cd)"`},
	{coordinator.AgentUnheard{Agent: "a1", Reason: wire.UnheardBehind},
		"<4>WARN  a device is told that it is not heard agent=a1 reason=counter_behind " +
			`do="if its state folder was lost: coordinator devices reset a1"`},
	{coordinator.AgentUnheard{Agent: "a1", Reason: wire.UnheardUnlisted},
		"<4>WARN  a device is told that it is not heard agent=a1 reason=unlisted " +
			`do="add its id and public key to identity.agents_file, and reload"`},
	{coordinator.Began{Epoch: 1, Rule: "trimmed_mean", ServerOptimizer: "none"},
		"<6>INFO  rounds begin rule=trimmed_mean server_optimizer=none"},
	{coordinator.Began{Epoch: 2, Raised: true, Rule: "mean", ServerOptimizer: "fedavgm"},
		"<6>INFO  rounds begin rule=mean server_optimizer=fedavgm\n" +
			"<6>INFO  the epoch is raised: agents obey this coordinator, even if another one has " +
			"announced a later round epoch=2"},
	{
		coordinator.ForeignAnnouncement{
			Foreign: wire.Order{Epoch: 1, Run: 7, Round: 2, Attempt: 1, Phase: wire.PhaseOpen},
			Own:     wire.Order{Epoch: 1, Run: 7, Round: 3, Attempt: 1, Phase: wire.PhaseOpen},
		},
		"<3>ERROR an announcement is signed with this coordinator's key, but this coordinator did not make it: " +
			"another coordinator runs with the key and a copy of the state folder, " +
			`or somebody replays an old message; stop the other coordinator foreign="epoch 1 run 7 round 2 attempt 1 open" own="epoch 1 run 7 round 3 attempt 1 open"`},
	{coordinator.ForeignRetained{Topics: 3, Example: "fl/v1/plant/u/0/plant-a1/7f/0", Agents: []wire.AgentID{"a1"}},
		"<4>WARN  messages that nobody reads were retained at the broker, and are deleted: a device, or a stranger " +
			"at a broker that anybody may use, fills it topics=3 example=fl/v1/plant/u/0/plant-a1/7f/0 agents=[a1]"},
	{coordinator.AgentsAhead{Agents: 3, Run: 7, Round: 20},
		"<4>WARN  agents are ahead of this coordinator and do not obey it: another coordinator leads them, or " +
			"this state folder is an older copy; to continue from this copy, stop the coordinator and run " +
			"`coordinator restore` agents=3 run=7 round=20"},
	{coordinator.AgentsAhead{}, `<6>INFO  no agent is ahead of this coordinator any more`},
	{coordinator.MessageDropped{Kind: mqtt.KindStatus, Agent: "a", Reason: coordinator.DropUnknown,
		Err: errors.New("not in the list")},
		`<4>WARN  message dropped kind=status agent=a reason=unknown_agent err="not in the list"`},
	{coordinator.StateMended{File: coordinator.StateModel, Damage: errors.New("torn"), Aside: "m.aside-1",
		Before: 8, Version: 7},
		`<3>ERROR the run's model is lost, so the run continues from an older one; check the disk file=model damage=torn moved_to=m.aside-1 lost_version=8 version=7`},
	{coordinator.StateMended{File: coordinator.StateModel, Damage: errors.New("torn"), Before: 8, Version: 9},
		`<3>ERROR the run's model and all older ones are lost, so the run continues from a newer one; check the disk file=model damage=torn lost_version=8 version=9`},
	{coordinator.StateMended{File: coordinator.StateTask, Damage: errors.New("torn")},
		`<3>ERROR a file of the state folder was damaged or missing; its content was recovered, nothing is lost; check the disk file=task damage=torn`},
	{coordinator.ModelsAhead{Version: 7, Newest: 12},
		"<4>WARN  models on disk are newer than the journal `run`, which may have been restored from an older " +
			"copy; the models are kept: `coordinator run --from VERSION` begins a run from one of them " +
			"journal_version=7 newest_version=12"},
	{coordinator.StatisticsReady{Rows: 7603, Columns: 22}, `<6>INFO  columns standardised rows=7603 columns=22`},
	{coordinator.StatisticsReady{Rows: 7603, Columns: 22, Constant: []string{"lat"}},
		"<6>INFO  columns standardised rows=7603 columns=22\n" +
			`<4>WARN  column is constant on all devices and is not scaled: remove it from task.features, or, if it ` +
			`should vary, subtract a constant from it column=lat`},
	{coordinator.StatisticsReady{Rows: 7603, Columns: 22,
		Far: []coordinator.FarAgent{{Agent: "a1", Column: "temp", Deviations: 123456}}},
		"<6>INFO  columns standardised rows=7603 columns=22\n" +
			`<4>WARN  an agent's data lie far from the others': another unit, a broken sensor, or false data; the standardisation disregards them ` +
			`agent=a1 column=temp deviations=123500`},
	{coordinator.UpdateLeftOut{Round: 7, Agent: "a1", Reason: coordinator.LeftOutRisk, Norm: 2e30, Usual: 0.51234},
		`<4>WARN  an update is left out of the model: its device is broken or dishonest, or its data differ much from the others' ` +
			`round=7 agent=a1 reason=risk norm=2e+30 usual=0.5123`},
	{coordinator.UpdateLarge{Round: 7, Agent: "a1", Times: 3, Since: 4, Norm: 30, Usual: 1, Counted: 3},
		`<4>WARN  unusually large updates: the device has unusual data or is dishonest agent=a1 round=7 in_a_row=3 ` +
			`norm=30 usual=1 counted=3 undo="coordinator model rollback --to 4"`},
	{coordinator.UpdateLarge{Round: 8, Agent: "a1", Times: 5, Since: 4, Norm: 30, Usual: 1, Counted: 3}, ""},
	{coordinator.UpdateLarge{Round: 9, Agent: "a1", Usual: 1},
		`<6>INFO  updates are as large as usual again agent=a1 round=9`},
	{coordinator.ModelRejected{Round: 7, Version: 6, Earlier: 5, Next: 7, Told: 2e30, Agents: []wire.AgentID{"a1"}},
		"<4>WARN  model rejected: it has diverged; check the devices named here, or lower the step size if they are " +
			"honest version=6 continues_from=5 as=7 median_risk=2e+30 agents=[a1] round=7"},
	{coordinator.UpdatesClipped{Round: 7, Reason: coordinator.ClippedRadius, Agents: []wire.AgentID{"a1", "a2"},
		Longest: 2.5, Most: 0.3},
		"<6>INFO  updates count as if they were no longer than allowed round=7 reason=radius agents=\"[a1 a2]\" " +
			"longest=2.5 most=0.3"},
	{coordinator.UpdatesPassedOver{Round: 7, Rule: "krum", Agents: []wire.AgentID{"a1", "a2"}},
		"<6>INFO  the rule has left updates out, as it does in each round round=7 rule=krum agents=\"[a1 a2]\""},
	{coordinator.ModelReady{Round: 2, Version: 1, Hash: wire.Digest{1}, Risk: 0.53099,
		Score: &learner.Score{R2: 0.58875, Accuracy: math.NaN()}},
		`<6>INFO  model ready version=1 hash=01000000000000000000000000000000 risk=0.531 r2=0.5888`},
	{coordinator.ModelReady{Round: 2, Version: 1, Risk: math.NaN(),
		Score: &learner.Score{R2: math.NaN(), Accuracy: 0.75}},
		`<6>INFO  model ready version=1 hash=00000000000000000000000000000000 accuracy=0.75`},
	{coordinator.ModelReady{Version: 1, Risk: 12345.6},
		`<6>INFO  model ready version=1 hash=00000000000000000000000000000000 risk=12350`},
	{coordinator.TransfersChanged{Receiving: 1}, ""},
	{coordinator.BlobChecked{Blob: wire.Digest{1}, Parts: 3, Took: time.Second},
		`<7>DEBUG the broker returns the whole blob blob=01000000000000000000000000000000 parts=3 took=1s`},
	{coordinator.BlobChecked{Blob: wire.Digest{1}, Parts: 3, Missing: 2, Again: time.Second},
		`<3>ERROR the broker does not return all parts of a blob, so agents have to ask for them: let it retain messages of 64 KiB, ` +
			`as many as there are parts, and let the coordinator read and write m/# blob=01000000000000000000000000000000 parts=3 missing=2 again_in=1s`},
	{coordinator.BlobChecked{Blob: wire.Digest{1}, Parts: 3, Missing: 3, Refused: true, Again: time.Second},
		`<3>ERROR the broker does not let the coordinator read a blob back, so nobody knows whether agents can: let the coordinator ` +
			`read and write m/# (` + "`coordinator acl`" + ` writes the rules for Mosquitto) blob=01000000000000000000000000000000 parts=3 missing=3 again_in=1s`},
	{round.PhaseEntered{}, ""},
	{round.AgentCounted{Agent: "a", Samples: 712, Agents: 3}, `<6>INFO  agent present agent=a rows=712 agents=3`},
	{round.AgentUnfit{Agent: "a", Reason: wire.DeclineBadData},
		`<4>WARN  agent cannot do the task agent=a reason=bad_data`},
	{round.AgentUnfit{Agent: "a", Reason: wire.DeclineBadData, Misfit: wire.Misfit{Column: "pm25",
		Reason: "out_of_range", Where: "a.csv: line 12", Bad: 30, All: 100}},
		`<4>WARN  agent cannot do the task agent=a reason=bad_data column=pm25 why=out_of_range bad=30 of=100 ` +
			`where="a.csv: line 12"`},
	{round.AgentUnfit{Agent: "a", Reason: wire.DeclineBadData, Misfit: wire.Misfit{Column: "pm25",
		Where: "a.csv: line 1"}}, // the column is missing
		`<4>WARN  agent cannot do the task agent=a reason=bad_data column=pm25 where="a.csv: line 1"`},
	{round.AgentLeft{Agent: "a", Reason: round.LeftLost, Agents: 2},
		`<6>INFO  agent left agent=a reason=lost agents=2`},
	{round.AgentSidelined{Agent: "a", Round: 2, Reason: round.SidelinedSilent, Draws: 4, Until: 6, Agents: 2},
		`<4>WARN  agent failed in the round and sits out the next draws agent=a round=2 reason=silent draws=4 until_round=6 agents=2`},
	{round.AgentReadmitted{Agent: "a", Round: 7, Agents: 3},
		`<6>INFO  agent may be drawn again agent=a round=7 agents=3`},
	{round.AgentReadmitted{Agent: "a", Round: 5, Early: true, Agents: 3},
		`<4>WARN  agent may be drawn again early, because too few others are present agent=a round=5 agents=3`},
	{round.SamplesLarge{Round: 2, Agents: []wire.AgentID{"a", "b"}, Most: 1000},
		`<4>WARN  agents report more than five times the median number of rows ` +
			`round=2 agents="[a b]" rows=1000 weights_capped=false`},
	{round.GatheringExtended{Agents: 2, Minimum: 3},
		`<4>WARN  too few agents to begin a round; waiting for more agents=2 minimum=3`},
	{round.RoundOpened{Round: 2, Attempt: 1, Kind: wire.KindTraining, Agents: 3,
		Participants: []wire.AgentID{"a", "b"}},
		`<6>INFO  round opened round=2 attempt=1 kind=training agents=3 participants=2`},
	{round.AgentJoined{Agent: "a", Round: 2}, ""},
	{round.AgentDeclined{Agent: "a", Round: 2, Reason: wire.DeclineNoTime},
		`<4>WARN  agent declined round=2 agent=a reason=no_time`},
	{round.UpdateAccepted{Agent: "a", Round: 2, Update: wire.Update{LocalSteps: 20}, Norm: 0.123456,
		After: time.Second},
		`<7>DEBUG update accepted round=2 agent=a local_steps=20 norm=0.1235 after=1s`},
	{round.UpdateRefused{Agent: "a", Round: 2, Reason: wire.RefuseNorm},
		`<4>WARN  update refused round=2 agent=a reason=norm`},
	{round.RoundClosed{Round: 2, Kind: wire.KindTraining, Version: 1, Selected: 3, Accepted: 2,
		Missing: []wire.AgentID{"c"}, Took: 1500 * time.Millisecond},
		`<6>INFO  round closed round=2 kind=training accepted=2 selected=3 took=1.5s version=1 missing=[c]`},
	{round.RoundClosed{Round: 1, Kind: wire.KindStatistics, Selected: 3, Accepted: 3, Took: time.Second},
		`<6>INFO  round closed round=1 kind=statistics accepted=3 selected=3 took=1s`},
	{round.RoundAbandoned{Round: 2, Reason: round.AbandonQuorum, Accepted: 1, Selected: 3,
		Missing: []wire.AgentID{"b", "c"}, Took: time.Minute},
		`<4>WARN  round abandoned round=2 reason=quorum accepted=1 selected=3 took=1m0s missing="[b c]"`},
	{round.RoundAbandoned{Round: 2, Reason: round.AbandonFold, Err: errors.New("not finite"), Took: time.Minute},
		`<4>WARN  round abandoned round=2 reason=fold accepted=0 selected=0 took=1m0s err="not finite"`},
	{round.RoundWaits{Reason: round.WaitNewRows, Fresh: 1, Agents: 3, Rows: 10, Silent: 2},
		`<6>INFO  the next round waits until enough agents have new rows agents=1 wanted=3 rows=10 do_not_tell=2`},
	{round.RoundWaits{Reason: round.WaitWindow, Until: time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC)},
		`<6>INFO  rounds rest until the next window of round.schedule opens=2026-03-01T22:00:00Z`},
	{round.RunFinished{Version: 50, Reason: stop.Patience},
		`<6>INFO  run finished version=50 reason=patience to_continue="coordinator task set KEY=VALUE"`},
	{round.RolloutBegan{Candidate: one, Released: two, Agents: 4, Least: 3},
		`<6>INFO  a model is rolled out to a share of the agents model=7/1 released=6/2 agents=4`},
	{round.RolloutBegan{Candidate: one, Released: two, Agents: 2, Least: 3},
		`<4>WARN  a model is rolled out to fewer agents than predict.devices, which decide; it is withdrawn ` +
			`unless more come: raise predict.rollout model=7/1 released=6/2 agents=2 predict.devices=3`},
	{round.RolloutBegan{Candidate: one, Released: two, Resumed: true},
		`<6>INFO  agents are told which model to predict with model=7/1 released=6/2`},
	{round.RolloutEnded{Candidate: one, Released: one, Verdict: rollout.Verdict{Result: rollout.First}},
		`<6>INFO  the first model is released to all agents model=7/1`},
	{round.RolloutEnded{Candidate: one, Released: one,
		Verdict: rollout.Verdict{Result: rollout.Widened, Agents: 5, Judged: 4, Ratio: 0.75}},
		`<6>INFO  a model is released to all agents model=7/1 agents=5 judged=4 residuals_ratio=0.75`},
	{round.RolloutEnded{Candidate: one, Released: two,
		Verdict: rollout.Verdict{Result: rollout.Worse, Agents: 5, Judged: 4, Ratio: math.Inf(1)}},
		`<3>ERROR a model is withdrawn: its residuals are larger than those of the released one, or most agents ` +
			`refuse it; agents predict with the released one until a newer model is better model=7/1 agents=5 ` +
			`judged=4 residuals_ratio=+Inf released=6/2`},
	{round.RolloutEnded{Candidate: one, Released: two,
		Verdict: rollout.Verdict{Result: rollout.NoReports, Agents: 1, Ratio: math.NaN()}},
		`<4>WARN  a model is withdrawn: too few agents have judged it in time; agents predict with the released ` +
			`one model=7/1 agents=1 judged=0 residuals_ratio=NaN released=6/2`},
}

func TestCoordinatorLog(t *testing.T) {
	compareLines(t, coordinatorLines, func(w io.Writer, fact any) {
		log, err := logging.New(w, debugging())
		if err != nil {
			t.Fatal(err)
		}
		testkit.Tell(coordinatorLog{log, &risks{}}, fact)
	})
}

// TestExplosionIsTold: a model that is much worse than those before is told once, until models are good again.
func TestExplosionIsTold(t *testing.T) {
	unknown := math.NaN()
	var b strings.Builder
	log, err := logging.New(&b, debugging())
	if err != nil {
		t.Fatal(err)
	}
	l := coordinatorLog{log, &risks{}}
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
		f := coordinator.ModelReady{Version: wire.ModelVersion(k), Risk: unknown, Median: x.risk}
		if x.held {
			f.Median, f.Score = unknown, &learner.Score{Risk: x.risk, R2: unknown, Accuracy: unknown}
		}
		l.Observe(f)
		if told := strings.Count(b.String(), "much worse") > before; told != x.want {
			t.Errorf("model %d, of risk %v: told %t", k, x.risk, told)
		}
	}
	l.Observe(coordinator.ModelReady{Version: 1, Risk: 1, Median: 100}) // of another run
	if got := strings.Count(b.String(), "much worse"); got != 2 ||
		!strings.Contains(b.String(), "of=\"held-out data\"") {
		t.Errorf("told %d times:\n%s", got, &b)
	}
}

func TestShort(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, 1: 1, 0.123456: 0.1235, -0.00123456: -0.001235, 98765.4: 98770,
		math.Inf(1): math.Inf(1)} {
		if got := short(x); got != want {
			t.Errorf("short(%v) is %v, want %v", x, got, want)
		}
	}
}

// TestEnrolLogWithoutError: a refusal without an error has no attribute err.
func TestEnrolLogWithoutError(t *testing.T) {
	var b strings.Builder
	log, err := logging.New(&b, debugging())
	if err != nil {
		t.Fatal(err)
	}
	enrolLog{log}.ObserveEnrolment(enrol.Refused{Agent: "a", From: "127.0.0.1", Reason: 1})
	enrolLog{log}.ObserveEnrolment(enrol.RenewRefused{Agent: "a", Reason: 1})
	if text := b.String(); strings.Contains(text, "err=") || strings.Count(text, "\n") != 2 {
		t.Errorf("%s", text)
	}
}
