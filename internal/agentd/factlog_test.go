package agentd

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// agentLines are facts of an agent, each with its line in the log; "" if it has none.
var agentLines = []surface.EventLine{
	{Event: agent.BrokerLinkChanged{Up: true}, WantLog: ""}, // the session says it
	{Event: agent.SubscriptionsRefused{Filters: []string{"d/a"}, NeighborBrokerFilters: []string{"b/hall/+"}},
		WantLog: "<3>ERROR the broker refuses subscriptions that this program needs, and is asked again: either its " +
			"access rules do not let this user read the topic " +
			"(coordinator acl writes rules for Mosquitto), or it is a node of a cluster that has lost its peers " +
			"(see its log, and give all nodes in broker.url) " +
			`topics="[d/a b/hall/+]"`},
	{Event: agent.SubscriptionsRefused{}, WantLog: `<6>INFO  the broker accepts all subscriptions`},
	{Event: agent.BrokerTested{SelfTestOutcome: mqtt.SelfTestOutcome{Result: mqtt.SelfTestPassed, Topic: "s/a/loop",
		Bytes: 61504}},
		WantLog: `<7>DEBUG the broker carries the largest messages bytes=61504`},
	{Event: agent.BrokerTested{SelfTestOutcome: mqtt.SelfTestOutcome{Result: mqtt.SelfTestDenied, Topic: "s/a/loop",
		Bytes: 61504}},
		WantLog: "<3>ERROR the broker's access rules withhold messages from this user (a test message to s/a/loop " +
			"did not " +
			"come back): load the federation's access rules (Mosquitto: copy the file of the coordinator's key " +
			"enrol.acl, or the output of `coordinator acl`, to its acl_file, and run `systemctl reload mosquitto`); " +
			"they must have `topic readwrite s/a/loop` for this user"},
	{Event: agent.AnnouncementMissing{Reason: agent.MissingAccessDenied, Federation: "air"}, WantLog: ""},
	// the line above says it
	{Event: agent.AnnouncementMissing{Reason: agent.MissingNotRetained, Federation: "air"},
		WantLog: "<4>WARN  the broker has no announcement of federation air: start the coordinator; if it runs, " +
			"compare " +
			"federation, broker.prefix and broker.url in agentd.yaml and coordinator.yaml"},
	{Event: agent.AnnouncementMissing{Reason: agent.MissingOtherFederation, Federation: "air",
		OtherFederations: []wire.Federation{"airs"}},
		WantLog: "<3>ERROR the coordinator with the configured key announces federation airs, but agentd.yaml has " +
			"federation: " +
			"air: set federation: airs in agentd.yaml and restart agentd"},
	{Event: agent.AnnouncementMissing{Federation: "air"},
		WantLog: "<6>INFO  the coordinator's announcement has arrived"},
	{Event: round.UplinkBudgetTooSmall{Round: 2, RoundBytes: 90_000, BytesLeft: 80_000},
		WantLog: `<4>WARN  the rest of the month's byte budget is too small for a round round=2 bytes=90000 left=80000`},
	{Event: agent.DeviceRulesChecked{Verdict: device.Verdict{LocalStepShare: 1, Rule: device.RuleNone}}, WantLog: ""},
	{Event: agent.DeviceRulesChecked{Verdict: device.Verdict{Rule: device.RuleTemperature}},
		WantLog: `<6>INFO  a rule for this device stops its work rule=temperature`},
	{Event: agent.DeviceRulesChecked{Verdict: device.Verdict{Rule: device.RuleTemperature},
		PreviousVerdict: device.Verdict{Rule: device.RuleTemperature}}, WantLog: ""},
	{Event: agent.DeviceRulesChecked{Verdict: device.Verdict{LocalStepShare: 0.5, Rule: device.RuleLoad},
		PreviousVerdict: device.Verdict{Rule: device.RuleTemperature}},
		WantLog: `<6>INFO  the rules for this device allow work again share_of_local_steps=0.5`},
	{Event: agent.CloneSeen{Boot: 5, Nonce: 0xab, OtherBoot: 4, OtherNonce: 0xcd},
		WantLog: `<3>ERROR another device has the identity of this agent: give one of them an id and a key of its own; this one stays connected ` +
			`starts="5 (00000000000000ab, here) and 4 (00000000000000cd)"`},
	{Event: agent.CloneSeen{Boot: 5, Nonce: 0xab, OtherBoot: 6, OtherNonce: 0xcd, Pause: 72345 * time.Millisecond},
		WantLog: `<3>ERROR another device has the identity of this agent: give one of them an id and a key of its own; this one disconnects for 1m12s ` +
			`starts="5 (00000000000000ab, here) and 6 (00000000000000cd)"`},
	{Event: agent.MessagesRejected{Reason: wire.RejectedBehind},
		WantLog: "<3>ERROR the coordinator ignores this device's messages: its counter of starts is behind, as " +
			"when the " +
			"state " +
			"folder was lost; run `coordinator devices reset ID` at the coordinator reason=counter_behind"},
	{Event: agent.AnnouncementsStale{StaleFor: time.Minute},
		WantLog: "<3>ERROR a round is open, but no new announcement has arrived for 1m0s (three times the maximum " +
			"duration of " +
			"a round): the coordinator is offline, or the broker withholds its announcements; see coordinator status"},
	{Event: agent.AnnouncementsStale{}, WantLog: `<6>INFO  announcements arrive again`},
	{Event: agent.CertificateUsed{Until: time.Unix(1_790_000_000, 0)}, WantLog: ""},
	{Event: agent.PersonalModelReset{Round: 7, Parameters: 198},
		WantLog: "<6>INFO  what of the model is the device's own begins anew round=7 parameters=198"},
	{Event: agent.PersonalModelReset{Round: 7, Parameters: 198, Err: errors.New("the risk is NaN")},
		WantLog: "<4>WARN  the local steps of the device's own model have diverged, and it begins anew: see " +
			"task.personal.lambda and task.step_size round=7 parameters=198 err=\"the risk is NaN\""},
	{Event: agent.CertificateUsed{Until: time.Unix(1_790_000_000, 0), Renewed: true},
		WantLog: "<6>INFO  the certificate for the broker is another one: the next connection uses it " +
			"expires=\"2026-09-21 14:13:20\""},
	{Event: agent.CertificateEnding{Until: time.Unix(1_790_000_000, 0), TimeLeft: 100 * time.Hour},
		WantLog: "<4>WARN  the certificate for the broker expires in 4 days: the coordinator has not answered; see " +
			"that it " +
			"runs, and that this device reaches it; a certificate of another authority must be renewed manually " +
			"expires=\"2026-09-21 14:13:20\""},
	{Event: agent.CertificateEnding{Until: time.Unix(1_790_000_000, 0), TimeLeft: -time.Hour,
		LastRefusal: wire.RenewFailed},
		WantLog: "<4>WARN  the certificate for the broker has expired: the coordinator refuses another one: it could " +
			"not " +
			"store it (its log says why); a certificate of another authority must be renewed manually " +
			"expires=\"2026-09-21 14:13:20\""},
	{Event: agent.RenewalRefused{Reason: wire.RenewOther},
		WantLog: "<3>ERROR the coordinator gives this device no other key or certificate: the new key is in its list " +
			"under " +
			"another device's name reason=other_device"},
	{Event: agent.Rekeyed{},
		WantLog: "<4>WARN  this device has another key from now on; it is kept in the state folder " +
			`key="AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="`},
	{Event: agent.ClockBehind{Machine: time.Unix(12, 0), UsedTime: time.Unix(1_790_000_000, 0)},
		WantLog: "<4>WARN  clock is behind: using 2026-09-21 14:13:20 UTC for certificates, as the coordinator has " +
			"signed or this program was built, since the machine says 1970-01-01 00:00:12; set it, and keep it right " +
			"with NTP"},
	{Event: agent.ClockBehind{Machine: time.Unix(1_790_000_000, 0)}, WantLog: `<6>INFO  the machine's clock is right again`},
	{Event: agent.RootDocumentAdopted{Version: 2}, WantLog: `<6>INFO  the next root document is taken: its keys count now version=2`},
	{Event: agent.MessagesRejected{}, WantLog: `<6>INFO  the coordinator accepts this device's messages again`},
	{Event: agent.MessageDropped{Kind: mqtt.KindRound, Reason: agent.DropSignature, Err: errors.New("wrong key")},
		WantLog: `<4>WARN  message dropped kind=round reason=bad_signature err="wrong key"`},
	{Event: agent.DataLoaded{Task: "air", Rows: 712, Took: 12345 * time.Microsecond},
		WantLog: `<6>INFO  local data fit the task task=air rows=712 took=12.35ms`},
	{Event: agent.DataLoaded{Task: "air", Rows: 715, RowsBefore: 712, Took: 2 * time.Millisecond},
		WantLog: `<6>INFO  local data have grown task=air rows=715 before=712 took=2ms`},
	{Event: agent.DataLoaded{Task: "air", Rows: 15, RowsBefore: 712, RenewalReason: "a.csv: cut off",
		Took: 2 * time.Millisecond},
		WantLog: `<4>WARN  local data have changed: a.csv: cut off task=air rows=15 before=712 took=2ms`},
	{Event: agent.DataLoaded{Task: "air", Rows: 1, RenewalReason: "a.csv: cut off", Problem: errors.New("too few")},
		WantLog: `<3>ERROR the local data fit the task no more; the agent takes no part in it: a.csv: cut off task=air err="too few"`},
	{Event: agent.DataLoaded{Task: "air",
		Problem: &data.FileError{File: "a.csv", Line: 3, Column: "y", Problem: "empty"}},
		WantLog: `<3>ERROR the local data do not fit the task; the agent takes no part in it task=air err="a.csv: line 3: column \"y\": empty"`},
	{Event: agent.DataCollected{Report: data.Report{Columns: []data.ColumnReport{{Name: "pm25", Used: 30,
		Unused: map[data.Reason]uint64{grid.OutOfRange: 4}, LastUnusedWhere: "a.csv: line 9"}}}},
		WantLog: `<4>WARN  values of an input are not used input=pm25 reason=out_of_range values=4 used=30 last="a.csv: line 9"`},
	{Event: agent.DataCollected{Report: data.Report{Columns: []data.ColumnReport{{Name: "pm25", Used: 30,
		Unused: map[data.Reason]uint64{grid.OutOfRange: 4}, LastUnusedWhere: "line 9",
		Problem: "the value is absent, null or empty",
		LastUnusedByReason: map[data.Reason]data.UnusedExample{grid.OutOfRange: {Where: "line 7",
			Problem: "2000 is out of range"}}}}}},
		WantLog: `<4>WARN  values of an input are not used input=pm25 reason=out_of_range values=4 used=30 last="line 7" ` +
			`problem="2000 is out of range"`},
	{Event: agent.DataCollected{Report: data.Report{Columns: []data.ColumnReport{{Name: "pm25",
		Unused: map[data.Reason]uint64{grid.OutOfRange: 9}}}},
		Before: data.Report{Columns: []data.ColumnReport{{Name: "pm25",
			Unused: map[data.Reason]uint64{grid.OutOfRange: 4}}}}}, WantLog: ""},
	{Event: agent.DataCollected{Report: data.Report{Columns: []data.ColumnReport{{Name: "pm25", Used: 70,
		Unused: map[data.Reason]uint64{grid.OutOfRange: 10}}}},
		Before: data.Report{Columns: []data.ColumnReport{{Name: "pm25",
			Unused: map[data.Reason]uint64{grid.OutOfRange: 9}}}}},
		WantLog: `<4>WARN  values of an input are not used input=pm25 reason=out_of_range values=10 used=70 last=""`},
	{Event: agent.Trained{Round: 4, Version: 3, LocalSteps: 20, Sizing: learner.ByBudget,
		StepTime:   4 * time.Millisecond,
		RiskBefore: 0.512345, RiskAfter: 0.1234, LocalStepsDuration: 80 * time.Millisecond},
		WantLog: `<6>INFO  trained round=4 local_steps=20 because=budget step_time=4ms risk_before=0.5123 risk_after=0.1234 took=80ms`},
	{Event: agent.Trained{Round: 4, Sizing: learner.ByBudget, LockWait: time.Second},
		WantLog: `<6>INFO  trained round=4 local_steps=0 because=budget step_time=0s risk_before=0 risk_after=0 took=0s waited_for_others=1s`},
	{Event: agent.TrainingLockAwaited{LockHolder: "power"}, WantLog: `<7>DEBUG training waits: the device trains for another federation for=power`},
	{Event: agent.TrainingLockAwaited{Waited: time.Second}, WantLog: ""},
	{Event: agent.TrainingFailed{Round: 4, Err: errors.New("diverged")},
		WantLog: `<3>ERROR no update for this round round=4 err=diverged`},
	{Event: agent.ModelFetched{Version: 3, Bytes: 88}, WantLog: ""},
	{Event: agent.StorageFailing{Operation: "save the update", Err: errors.New("no space left")},
		WantLog: `<3>ERROR cannot save the update; trying again until it succeeds err="no space left"`},
	{Event: agent.StorageMended{}, WantLog: `<6>INFO  the state folder can be written again`},
	{Event: round.AnnouncementIgnored{Position: wire.AnnouncementPosition{Epoch: 1, Run: 2, Round: 3, Attempt: 1,
		Phase: wire.PhaseOpen},
		Reason: round.IgnoredOlder},
		WantLog: `<4>WARN  announcement ignored place="epoch 1 run 2 round 3 attempt 1 open" reason=older`},
	{Event: round.MessageUnsupported{Message: wire.TypeInvitation, Err: errors.New("section x: not known")},
		WantLog: "<4>WARN  this agent takes no part: it does not know what the coordinator's message needs; " +
			"update the " +
			"agent " +
			`message=invitation err="section x: not known"`},
	{Event: round.WorkStarted{Round: 4, Kind: wire.KindTraining, Left: time.Minute},
		WantLog: `<7>DEBUG invited round=4 kind=training left=1m0s`},
	{Event: round.WorkEnded{Round: 4, Kind: wire.KindTraining, Result: round.WorkAccepted},
		WantLog: `<6>INFO  round ended round=4 kind=training result=accepted`},
	{Event: round.WorkEnded{Round: 4, Kind: wire.KindTraining, Result: round.WorkRefused,
		RefusalReason: wire.RefuseNotFinite},
		WantLog: `<4>WARN  round ended round=4 kind=training result=refused reason=not_finite`},
	{Event: round.WorkEnded{Round: 4, Kind: wire.KindStatistics, Result: round.WorkDeclined,
		DeclineReason: wire.DeclineNoTime},
		WantLog: `<4>WARN  round ended round=4 kind=statistics result=declined reason=no_time`},
	{Event: round.WorkEnded{Round: 4, Kind: wire.KindTraining, Result: round.WorkSuperseded},
		WantLog: `<6>INFO  round ended round=4 kind=training result=superseded`},
}

func TestAgentLog(t *testing.T) {
	surface.CompareLines(t, agentLines, func(w io.Writer, fact any) {
		log, err := logging.New(w, surface.DebugLogOptions())
		if err != nil {
			t.Fatal(err)
		}
		testkit.NotifyObserver(agentLog{log}, fact)
	})
}
