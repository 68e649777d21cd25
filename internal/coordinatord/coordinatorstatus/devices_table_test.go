package coordinatorstatus

import (
	"bytes"
	"flag"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

var enrolledSix = []wire.AgentID{"five", "four", "one", "six", "three", "two"}

var update = flag.Bool("update", false, "rewrite testdata")

func newTracker(c *surface.Clock) *StatusTracker {
	return New("v0.1.0", "air", c.Now, status.NewBoard(c.Now, nil))
}

// sixDevices returns a tracker with a device in each state.
func sixDevices(c *surface.Clock) *StatusTracker {
	v := newTracker(c)
	tell := func(events ...observe.Event) {
		for _, f := range events {
			v.Observe(f)
		}
	}
	online := &wire.Presence{State: wire.PresenceOnline, SoftwareVersion: "agentd v0.4.0"}
	tell(coordinator.AgentListChanged{ListedAgents: 6},
		// Device five left before this process started, at an unknown time.
		coordinator.MessageAccepted{Agent: "five", Retained: true,
			Presence: &wire.Presence{State: wire.PresenceLost, SoftwareVersion: "agentd v0.3.1"}},
		coordinator.MessageAccepted{Agent: "one", Presence: online, Retained: true},
		coordinator.MessageAccepted{Agent: "two", Presence: &wire.Presence{State: wire.PresenceOnline,
			SoftwareVersion: "b\nad"}},
		coordinator.MessageAccepted{Agent: "four"}, coordinator.MessageAccepted{Agent: "three"},
		round.AgentEligible{Agent: "one", RowCount: 60}, round.AgentEligible{Agent: "two", RowCount: 61},
		round.AgentEligible{Agent: "four", RowCount: 10},
		round.AgentUnfit{Agent: "three", Reason: wire.DeclineBadData, DataProblem: wire.DataProblem{Column: "pm25",
			Reason: "unparseable", ExampleLocation: "a.csv: line 9", UnusableValues: 3, TotalValues: 40}},
		round.RoundOpened{Round: 7}, round.AgentJoined{Agent: "one", Round: 7},
		round.AgentJoined{Agent: "two", Round: 7},
		round.AgentJoined{Agent: "four", Round: 7})
	c.Advance(time.Minute)
	tell(round.UpdateAccepted{Agent: "one", Round: 7, Update: wire.Update{Samples: 62, SecondsPerLocalStep: 0.00125}},
		// an update of an earlier round was refused
		round.UpdateRefused{Agent: "two", Round: 6, Reason: wire.RefuseLate},
		round.UpdateRefused{Agent: "two", Round: 7, Reason: wire.RefuseNotFinite},
		round.AgentSidelined{Agent: "four", Round: 7, Reason: round.SidelinedSilent, LastSidelinedRound: 9},
		round.RoundClosed{Round: 7},
		round.RoundOpened{Round: 8,
			SidelinedAgents: []round.SidelinedAgent{{Agent: "four", Reason: round.SidelinedSilent,
				LastSidelinedRound: 9}}},
		round.AgentJoined{Agent: "one", Round: 8},
		round.AgentJoined{Agent: "one", Round: 8}, // the agent joins the round again after a restart of the coordinator
		coordinator.AgentReportReceived{Agent: "one", BootEpoch: 4,
			Report: wire.AgentMetricsReport{SoftwareVersion: "agentd v0.4.1",
				Metrics: []wire.ReportMetric{{ID: 27, Value: 5e6}, {ID: 28, Value: 1e6}, {ID: 40, Value: 41.4},
					{ID: 41, Value: 0.83}}}},
		coordinator.MessageAccepted{Agent: "one", RootVersion: 2},
		round.AgentLeft{Agent: "two", Reason: round.LeftConnectionLost},
		devices.AgentRejected{Agent: "two", Reason: wire.RejectedOldEpoch},
		devices.AgentRejected{Agent: "four", Reason: wire.RejectedClone},
		coordinator.MessageAccepted{Agent: "four"},
		devices.AgentRejected{Agent: "six", Reason: wire.RejectedOtherKey},
		coordinator.MessageDropped{Agent: "one", Reason: devices.DropVersion,
			Err: &wire.ProtocolVersionError{MessageVersion: 1}},
		coordinator.MessageAccepted{Agent: "one", RootVersion: 2}, // the device was updated to the new protocol version
		coordinator.MessageDropped{Agent: "five", Reason: devices.DropVersion,
			Err: &wire.ProtocolVersionError{MessageVersion: 1}},
		coordinator.MessageDropped{Reason: devices.DropVersion, Err: &wire.ProtocolVersionError{MessageVersion: 1}},
		// a message from a device that is not in the agent list
		devices.AgentRejected{Agent: "stranger", Reason: wire.RejectedUnlistedAgent})
	c.Advance(time.Hour)
	tell(coordinator.AgentReportReceived{Agent: "one", BootEpoch: 4,
		Report: wire.AgentMetricsReport{SoftwareVersion: "agentd v0.4.1",
			Metrics: []wire.ReportMetric{{ID: 7, Value: math.Inf(1)}, {ID: 27, Value: 7e6}, {ID: 28, Value: 1.5e6},
				{ID: 40, Value: 41.4}, {ID: 41, Value: 0.83}}}})
	return v
}

// TestDevicesSitOut checks that the sidelined agents of a new round replace the old ones, so that no device stays
// sidelined after a reset or in a new run.
func TestDevicesSitOut(t *testing.T) {
	c := surface.NewClock()
	v := sixDevices(c)
	state := func() string { return mustList(t, v, "").Devices[1].State }
	if s := state(); s != deviceSitsOut {
		t.Fatalf("four: %s", s)
	}
	v.Observe(round.RoundOpened{Round: 1})
	v.Observe(coordinator.MessageAccepted{Agent: "four"})
	if s := state(); s != devicePresent {
		t.Errorf("four: %s", s)
	}
	if u := v.deviceByID["four"].rejectionReason; u != wire.RejectedClone {
		t.Errorf("an hour after the word of a clone it is %v", u)
	}
	c.Advance(2 * time.Hour)
	v.Observe(coordinator.MessageAccepted{Agent: "four"})
	if u := v.deviceByID["four"].rejectionReason; u != 0 {
		t.Errorf("three hours after the word of a clone it is %v", u)
	}
}

// TestDeviceConnectedOnly checks that a device without a hello for a minute is reported to have a wrong key or no
// access.
func TestDeviceConnectedOnly(t *testing.T) {
	c := surface.NewClock()
	v := newTracker(c)
	online := &wire.Presence{State: wire.PresenceOnline}
	v.Observe(coordinator.MessageAccepted{Agent: "one", Presence: online})
	v.Observe(coordinator.MessageAccepted{Agent: "two", Presence: online})
	why := func(i int) string { return mustList(t, v, "").Devices[i].StateReason }
	const one, two = 2, 5 // indices of enrolledSix
	if w := why(one); w != "" {
		t.Errorf("at once: %q", w)
	}
	v.Observe(round.AgentEligible{Agent: "two", RowCount: 9})
	v.Observe(round.AgentLeft{Agent: "two", Reason: round.LeftConnectionLost})
	c.Advance(time.Minute)
	if w := why(one); !strings.Contains(w, "the device has a different coordinator_key") {
		t.Errorf("without a hello for a minute: %q", w)
	}
	if w := why(two); w != string(round.LeftConnectionLost) {
		t.Errorf("a device that said hello and left: %q", w)
	}
	v.Observe(round.RoundOpened{Round: 2, ResponseLottery: round.ResponseLottery{AnswerThreshold: 1 << 30,
		EstimatedAgents: 9}})
	if w := why(one); w != "" {
		t.Errorf("where only a share of the agents says hello: %q", w)
	}
}

func mustList(t testing.TB, v *StatusTracker, by string, states ...string) *Devices {
	t.Helper()
	l, err := v.ListDevices(enrolledSix, states, by)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDevicesPage(t *testing.T) {
	c := surface.NewClock()
	surface.ComparePage(t, *update, "devices_new", mustList(t, newTracker(c), ""))
	v := sixDevices(c)
	surface.ComparePage(t, *update, "devices", mustList(t, v, "state"))
	v.Observe(coordinator.AgentListChanged{ListedAgents: 5, RemovedAgents: []wire.AgentID{"one"}})
	surface.ComparePage(t, *update, "devices_gone", mustList(t, v, "-rows", deviceAbsent, deviceNever, devicePresent))
}

func TestDevicesOrder(t *testing.T) {
	v := sixDevices(surface.NewClock())
	for _, by := range DeviceSortKeys() {
		up, down := mustList(t, v, by).Devices, mustList(t, v, "-"+by).Devices
		if slices.Reverse(down); !slices.EqualFunc(up, down, func(a, b *Device) bool { return a.Agent == b.Agent }) {
			t.Errorf("%s: -%s is not the other direction", by, by)
		}
	}
	for by, first := range map[string]string{"": "five", "state": "one", "-rows": "one", "seen": "five", "-heat": "one",
		"-bytes": "one", "-rounds": "one"} {
		if is := mustList(t, v, by).Devices[0].Agent; is != first {
			t.Errorf("by %q the first is %s, want %s", by, is, first)
		}
	}
	if _, err := v.ListDevices(enrolledSix, nil, "weight"); err == nil || !strings.Contains(err.Error(), "battery") {
		t.Errorf("sorted by weight: error %v", err)
	}
	if _, err := v.ListDevices(enrolledSix, []string{"asleep"}, ""); err == nil ||
		!strings.Contains(err.Error(), "sits out") {
		t.Errorf("state asleep: error %v", err)
	}
}

// TestDevicesKept checks that times, counts and traffic are restored, except for a device that has left the list.
func TestDevicesKept(t *testing.T) {
	c := surface.NewClock()
	v := sixDevices(c)
	saved, changed := v.EncodeDeviceHistoryIfChanged()
	if _, again := v.EncodeDeviceHistoryIfChanged(); !changed || again {
		t.Errorf("changed %t, and again %t", changed, again)
	}
	w := newTracker(c)
	if err := w.RestoreDeviceHistory(saved, []wire.AgentID{"five", "four", "one", "six", "three"}); err != nil {
		t.Fatal(err)
	}
	for k, was := range mustList(t, v, "").Devices {
		is := mustList(t, w, "").Devices[k]
		if was.Agent == "two" { // the only device that is not in the list
			was.LastSeen, was.WorkedRounds, was.FailedRounds = nil, 0, 0
		}
		if unixOrZero(is.LastSeen) != unixOrZero(was.LastSeen) || is.WorkedRounds != was.WorkedRounds ||
			is.AcceptedUpdates != was.AcceptedUpdates ||
			is.FailedRounds != was.FailedRounds ||
			valueOrNegInf(is.MonthTrafficBytes) != valueOrNegInf(was.MonthTrafficBytes) {
			t.Errorf("restored %+v, want %+v", is, was)
		}
	}
	for n := range len(saved) { // truncated between two devices, or damaged
		x := newTracker(c)
		err := x.RestoreDeviceHistory(saved[:n], enrolledSix)
		x.hasUnsavedChanges = true
		if again, _ := x.EncodeDeviceHistoryIfChanged(); err != nil && len(again) > 0 ||
			err == nil && !bytes.Equal(again, saved[:n]) {
			t.Errorf("cut off at %d of %d bytes: error %v, and %d bytes are saved again", n, len(saved), err,
				len(again))
		}
	}
}

// TestTraffic checks the sum of reported traffic over boots and months.
func TestTraffic(t *testing.T) {
	var k deviceHistory
	march, april := time.Date(2026, 3, 31, 23, 0, 0, 0, time.UTC), time.Date(2026, 4, 1, 1, 0, 0, 0, time.UTC)
	for _, x := range []struct {
		at    time.Time
		boot  wire.Epoch
		total uint64
		want  uint64
	}{
		{march, 3, 1000, 0}, // the total may include traffic of February
		{march, 3, 1500, 500},
		{march, 4, 20, 520},
		{march, 4, 10, 520}, // the report is impossible
		{april, 4, 40, 30},
		{april, 5, 7, 37},
	} {
		if k.addReportedTraffic(x.at, x.boot, x.total); k.monthTrafficBytes != x.want {
			t.Errorf("%+v: %d bytes", x, k.monthTrafficBytes)
		}
	}
}
