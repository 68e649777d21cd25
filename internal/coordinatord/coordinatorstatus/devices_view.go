package coordinatorstatus

import (
	"errors"
	"math"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// DevicesView keeps what is known of each device up to date from a coordinator's events. It has an entry for each one
// that was heard: about 250 bytes, and the texts of unfit ones (BenchmarkDevices in package daemon).
type DevicesView struct {
	now               func() time.Time
	mu                sync.Mutex // it is asked from other goroutines
	deviceByID        map[wire.AgentID]*deviceEntry
	trainingByID      map[wire.AgentID]*deviceEntry // in the round that is open
	openRound         wire.RoundID
	listedAgents      int  // agents in the list that is in effect
	hasUnsavedChanges bool // since it was saved
	isHelloSampled    bool // only some agents send a hello (round.gather.respond)
}

var _ observe.Observer = (*DevicesView)(nil)

// deviceEntry is what is known of one.
type deviceEntry struct {
	deviceHistory
	protocolVersion    uint8 // the version of the protocol, if that is another one than ours; 0 = ours
	root               wire.RootVersion
	helloReceived      bool  // it has said hello, and has not left since
	onlineSince        int64 // Unix time of the newest presence online without a hello since; 0 = none
	leaveReason        round.LeaveReason
	unfit              *unfitAgent
	lastSidelinedRound wire.RoundID // it sits out up to this round; 0 = it does not
	sidelineReason     round.SidelineReason
	rejectionReason    wire.MessageRejectionReason // 0 = it is heard
	rejectedAt         int64                       // that it is not, as kept.seen
	software           unique.Handle[string]
	rows               uint64
	leftOutUpdates     uint32  // updates that no model has, since this coordinator's start
	clippedUpdates     uint32  // updates of which models have a part, likewise
	stepSeconds        float64 // seconds, of a local step; these four are NaN where they are not told
	budgetUsedBytes    float64 // bytes of the month, as it counts them itself
	batteryRatio       float64 // from 0 to 1
	temperature        float64 // °C
}

// NewDevices returns the view of a coordinator that has just started.
func NewDevices(now func() time.Time) *DevicesView {
	return &DevicesView{now: now, deviceByID: map[wire.AgentID]*deviceEntry{},
		trainingByID: map[wire.AgentID]*deviceEntry{}}
}

// device returns an agent's entry, and makes it if there is none.
func (v *DevicesView) device(id wire.AgentID) *deviceEntry {
	d := v.deviceByID[id]
	if d == nil {
		d = newDevice()
		v.deviceByID[id] = d
	}
	return d
}

func newDevice() *deviceEntry {
	return &deviceEntry{stepSeconds: math.NaN(), budgetUsedBytes: math.NaN(), batteryRatio: math.NaN(),
		temperature: math.NaN()}
}

// Observe implements observe.Observer. Each row of the table combines the events of one device.
func (v *DevicesView) Observe(event observe.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f := event.(type) {
	case round.AgentEligible:
		d := v.device(f.Agent)
		d.helloReceived, d.onlineSince, d.unfit, d.rows = true, 0, nil, f.RowCount
	case round.AgentUnfit:
		d, m := v.device(f.Agent), f.DataProblem
		d.helloReceived, d.onlineSince = true, 0
		d.unfit = &unfitAgent{"", f.Reason.String(), m.Column, m.Reason, m.ExampleLocation, m.UnusableValues,
			m.TotalValues}
	case round.AgentLeft:
		d := v.device(f.Agent)
		d.helloReceived, d.leaveReason, d.unfit = false, f.Reason, nil
		if f.Reason == round.LeftRevoked {
			d.lastSidelinedRound = 0
		}
		delete(v.trainingByID, f.Agent)
	case round.AgentSidelined:
		d := v.device(f.Agent)
		d.lastSidelinedRound, d.sidelineReason = f.LastSidelinedRound, f.Reason
		v.countFailedRound(d)
	case round.AgentReadmitted:
		v.device(f.Agent).lastSidelinedRound = 0
	case round.RoundOpened:
		v.openRound, v.isHelloSampled = f.Round, f.ResponseLottery.EstimatedAgents > 0
		for _, d := range v.deviceByID {
			d.lastSidelinedRound = 0
		}
		for _, s := range f.SidelinedAgents { // all that do
			d := v.device(s.Agent)
			d.lastSidelinedRound, d.sidelineReason = s.LastSidelinedRound, s.Reason
		}
	case round.AgentJoined:
		d := v.device(f.Agent)
		v.trainingByID[f.Agent] = d
		if d.lastJoinedRound != f.Round { // else it goes on after a restart of the coordinator
			d.lastJoinedRound = f.Round
			d.workedRounds++
			v.hasUnsavedChanges = true
		}
	case round.AgentDeclined:
		if _, worked := v.trainingByID[f.Agent]; worked {
			v.countFailedRound(v.device(f.Agent))
		}
		delete(v.trainingByID, f.Agent)
	case round.UpdateAccepted:
		v.recordAcceptedUpdate(f)
	case round.UpdateRefused:
		if _, worked := v.trainingByID[f.Agent]; worked && f.Round == v.openRound {
			v.countFailedRound(v.device(f.Agent))
			delete(v.trainingByID, f.Agent)
		}
	case round.RoundClosed, round.RoundAbandoned:
		clear(v.trainingByID)
	case coordinator.MessageAccepted:
		v.recordSignOfLife(f)
	case coordinator.AgentReportReceived:
		v.recordReport(f)
	case devices.AgentRejected:
		if d := v.deviceByID[f.Agent]; d != nil || f.Reason != wire.RejectedUnlistedAgent { // of an id of the list
			d := v.device(f.Agent)
			d.rejectionReason, d.rejectedAt = f.Reason, v.now().Unix()
		}
	case coordinator.MessageDropped:
		if other := (*wire.VersionError)(nil); f.Agent != "" && f.Reason == devices.DropVersion &&
			errors.As(f.Err, &other) {
			v.device(f.Agent).protocolVersion = other.MessageVersion
		}
	case aggregation.UpdateLeftOut:
		v.device(f.Agent).leftOutUpdates++
	case aggregation.ModelRejected:
		for _, a := range f.Agents {
			v.device(a).leftOutUpdates++
		}
	case aggregation.UpdatesExcludedByRule:
		for _, a := range f.Agents {
			v.device(a).leftOutUpdates++
		}
	case aggregation.UpdatesClipped:
		for _, a := range f.Agents {
			v.device(a).clippedUpdates++
		}
	case coordinator.AgentListChanged:
		v.listedAgents = f.ListedAgents
		for _, gone := range f.RemovedAgents {
			delete(v.deviceByID, gone)
			delete(v.trainingByID, gone)
		}
	}
}

func (v *DevicesView) countFailedRound(d *deviceEntry) {
	d.failedRounds++
	v.hasUnsavedChanges = true
}

func (v *DevicesView) recordAcceptedUpdate(f round.UpdateAccepted) {
	d := v.device(f.Agent)
	d.acceptedUpdates++
	v.hasUnsavedChanges = true
	if f.Update.Samples > 0 {
		d.rows = f.Update.Samples
	}
	if f.Update.SecondsPerLocalStep > 0 {
		d.stepSeconds = f.Update.SecondsPerLocalStep
	}
	delete(v.trainingByID, f.Agent)
}

// cloneProblemSeconds is after how many seconds without another word of a clone there is none.
const cloneProblemSeconds = 2 * 60 * 60

// recordSignOfLife takes note that a device is alive. A presence that the broker has kept tells so only if it says
// online: the broker replaces it when it loses the device.
func (v *DevicesView) recordSignOfLife(f coordinator.MessageAccepted) {
	d := v.device(f.Agent)
	if p := f.Presence; p != nil {
		d.software = unique.Make(p.Software)
		if d.onlineSince = 0; p.State == wire.PresenceOnline && !d.helloReceived {
			d.onlineSince = v.now().Unix()
		}
		if f.Retained && p.State != wire.PresenceOnline {
			return
		}
	}
	d.lastSeenAt, d.protocolVersion, d.root = v.now().Unix(), 0, f.RootVersion
	if d.rejectionReason != wire.RejectedClone ||
		d.lastSeenAt-d.rejectedAt > cloneProblemSeconds { // of two devices one is heard
		d.rejectionReason = 0
	}
	v.hasUnsavedChanges = true
}

// recordReport takes a report, in which an agent may say anything.
func (v *DevicesView) recordReport(f coordinator.AgentReportReceived) {
	d := v.device(f.Agent)
	d.software = unique.Make(f.Report.Software)
	traffic := 0.
	d.budgetUsedBytes, d.batteryRatio, d.temperature = math.NaN(), math.NaN(), math.NaN()
	for _, r := range f.Report.Metrics {
		switch metrics.MetricNameByID(r.ID) {
		case "agentd_samples":
			d.rows = toReportedCount(r.Value)
		case "agentd_step_seconds":
			d.stepSeconds = r.Value
		case "agentd_mqtt_payload_bytes_total":
			traffic += r.Value
		case "agentd_budget_used_bytes":
			d.budgetUsedBytes = r.Value
		case "agentd_device_battery_ratio":
			d.batteryRatio = r.Value
		case "agentd_device_temperature_celsius":
			d.temperature = r.Value
		}
	}
	d.addTraffic(v.now(), f.Boot, toReportedCount(traffic))
	v.hasUnsavedChanges = true
}

// toReportedCount makes a number of things of what an agent says.
func toReportedCount(x float64) uint64 {
	if x >= 0 && x < 1<<53 { // not NaN
		return uint64(x)
	}
	return 0
}

// version is the device's program, without the word that all have.
func (d *deviceEntry) version() string {
	if d.software == (unique.Handle[string]{}) {
		return ""
	}
	return strings.TrimPrefix(d.software.Value(), "agentd ")
}
