package coordinatorstatus

import (
	"errors"
	"math"
	"strings"
	"unique"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// deviceEntry is a row of the table of devices: about 250 bytes, and the texts of an unfit one (BenchmarkDevices in
// package coordinatord).
type deviceEntry struct {
	deviceHistory
	protocolVersion         uint8 // the version of the protocol, if that is another one than ours; 0 = ours
	rootDocumentVersion     wire.RootVersion
	hasSaidHello            bool  // it has said hello, and has not left since
	onlineWithoutHelloSince int64 // Unix time of the newest presence online without a hello since; 0 = none
	leaveReason             round.LeaveReason
	unfit                   *unfitAgent   // nil = it has not reported that it cannot do the task
	largeUpdates            *largeUpdates // nil = its last update was not unusually large
	lastSidelinedRound      wire.RoundID  // it sits out up to this round; 0 = it does not
	sidelineReason          round.SidelineReason
	rejectionReason         wire.MessageRejectionReason // 0 = it is heard
	rejectedAt              int64                       // that it is not, as kept.seen
	programVersionHandle    unique.Handle[string]
	rows                    uint64
	leftOutUpdates          uint32  // updates that no model has, since this coordinator's start
	clippedUpdates          uint32  // updates of which models have a part, likewise
	secondsPerLocalStep     float64 // seconds, of a local step; these four are NaN where they are not told
	budgetUsedBytes         float64 // bytes of the month, as it counts them itself
	batteryRatio            float64 // from 0 to 1
	temperature             float64 // °C
}

// findOrAddDevice returns an agent's entry, and makes it if there is none.
func (v *StatusTracker) findOrAddDevice(id wire.AgentID) *deviceEntry {
	d := v.deviceByID[id]
	if d == nil {
		d = newDevice()
		v.deviceByID[id] = d
	}
	return d
}

func newDevice() *deviceEntry {
	return &deviceEntry{secondsPerLocalStep: math.NaN(), budgetUsedBytes: math.NaN(), batteryRatio: math.NaN(),
		temperature: math.NaN()}
}

// observeDeviceEvent records the presence and the reports of devices, and changes of the agent list.
func (v *StatusTracker) observeDeviceEvent(event observe.Event) {
	switch f := event.(type) {
	case round.AgentEligible:
		v.current.EligibleAgents = f.EligibleAgents
		d := v.findOrAddDevice(f.Agent)
		d.hasSaidHello, d.onlineWithoutHelloSince, d.unfit, d.rows = true, 0, nil, f.RowCount
	case round.AgentUnfit:
		v.current.EligibleAgents = f.EligibleAgents
		d, m := v.findOrAddDevice(f.Agent), f.DataProblem
		d.hasSaidHello, d.onlineWithoutHelloSince = true, 0
		d.unfit = &unfitAgent{string(f.Agent), f.Reason.String(), m.Column, m.Reason, m.ExampleLocation,
			m.UnusableValues, m.TotalValues}
	case round.AgentLeft:
		v.recordAgentLeft(f)
	case round.AgentSidelined:
		v.current.EligibleAgents = f.EligibleAgents
		d := v.findOrAddDevice(f.Agent)
		d.lastSidelinedRound, d.sidelineReason = f.LastSidelinedRound, f.Reason
		v.countFailedRound(d)
	case round.AgentReadmitted:
		v.current.EligibleAgents = f.EligibleAgents
		v.findOrAddDevice(f.Agent).lastSidelinedRound = 0
	case coordinator.MessageAccepted:
		v.recordSignOfLife(f)
	case coordinator.AgentReportReceived:
		v.recordAgentReport(f)
	case devices.AgentRejected:
		if d := v.deviceByID[f.Agent]; d != nil || f.Reason != wire.RejectedUnlistedAgent { // of an id of the list
			d := v.findOrAddDevice(f.Agent)
			d.rejectionReason, d.rejectedAt = f.Reason, v.now().Unix()
		}
	case coordinator.MessageDropped:
		if other := (*wire.ProtocolVersionError)(nil); f.Agent != "" && f.Reason == devices.DropVersion &&
			errors.As(f.Err, &other) {
			v.findOrAddDevice(f.Agent).protocolVersion = other.MessageVersion
		}
	case coordinator.AgentListChanged:
		v.current.EnrolledAgents = f.ListedAgents
		for _, gone := range f.RemovedAgents {
			delete(v.deviceByID, gone)
			delete(v.trainingDeviceByID, gone)
		}
	}
}

func (v *StatusTracker) recordAgentLeft(f round.AgentLeft) {
	v.current.EligibleAgents = f.EligibleAgents
	d := v.findOrAddDevice(f.Agent)
	d.hasSaidHello, d.leaveReason, d.unfit = false, f.Reason, nil
	delete(v.trainingDeviceByID, f.Agent)
	if f.Reason != round.LeftRevoked {
		return
	}
	d.lastSidelinedRound = 0
	if i, ok := v.participantIndexByAgent[f.Agent]; ok && v.current.Participants[i].State != stateAccepted {
		v.setParticipantState(f.Agent, stateOut, string(f.Reason))
	}
}

func (v *StatusTracker) countFailedRound(d *deviceEntry) {
	d.failedRounds++
	v.hasUnsavedChanges = true
}

// recordFailedTraining counts the round as failed for a device that is at work in it.
func (v *StatusTracker) recordFailedTraining(agent wire.AgentID) {
	if d := v.trainingDeviceByID[agent]; d != nil {
		v.countFailedRound(d)
		delete(v.trainingDeviceByID, agent)
	}
}

func (v *StatusTracker) recordAcceptedUpdate(f round.UpdateAccepted) {
	v.current.AcceptedUpdates++
	v.setParticipantState(f.Agent, stateAccepted, "").LocalSteps = f.Update.LocalSteps
	d := v.findOrAddDevice(f.Agent)
	d.acceptedUpdates++
	v.hasUnsavedChanges = true
	if f.Update.Samples > 0 {
		d.rows = f.Update.Samples
	}
	if f.Update.SecondsPerLocalStep > 0 {
		d.secondsPerLocalStep = f.Update.SecondsPerLocalStep
	}
	delete(v.trainingDeviceByID, f.Agent)
}

// cloneProblemSeconds is after how many seconds without another word of a clone there is none.
const cloneProblemSeconds = 2 * 60 * 60

// recordSignOfLife takes note that a device is alive. A presence that the broker has kept tells so only if it says
// online: the broker replaces it when it loses the device.
func (v *StatusTracker) recordSignOfLife(f coordinator.MessageAccepted) {
	d := v.findOrAddDevice(f.Agent)
	if p := f.Presence; p != nil {
		d.programVersionHandle = unique.Make(p.SoftwareVersion)
		if d.onlineWithoutHelloSince = 0; p.State == wire.PresenceOnline && !d.hasSaidHello {
			d.onlineWithoutHelloSince = v.now().Unix()
		}
		if f.Retained && p.State != wire.PresenceOnline {
			return
		}
	}
	d.lastSeenAt, d.protocolVersion, d.rootDocumentVersion = v.now().Unix(), 0, f.RootVersion
	if d.rejectionReason != wire.RejectedClone ||
		d.lastSeenAt-d.rejectedAt > cloneProblemSeconds { // of two devices one is heard
		d.rejectionReason = 0
	}
	v.hasUnsavedChanges = true
}

// recordAgentReport takes a report, in which an agent may say anything.
func (v *StatusTracker) recordAgentReport(f coordinator.AgentReportReceived) {
	d := v.findOrAddDevice(f.Agent)
	d.programVersionHandle = unique.Make(f.Report.SoftwareVersion)
	traffic := 0.
	d.budgetUsedBytes, d.batteryRatio, d.temperature = math.NaN(), math.NaN(), math.NaN()
	for _, r := range f.Report.Metrics {
		switch metrics.MetricNameByID(r.ID) {
		case "agentd_samples":
			d.rows = countFromReportedValue(r.Value)
		case "agentd_step_seconds":
			d.secondsPerLocalStep = r.Value
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
	d.addReportedTraffic(v.now(), f.BootEpoch, countFromReportedValue(traffic))
	v.hasUnsavedChanges = true
}

// countFromReportedValue makes a number of things of what an agent says.
func countFromReportedValue(x float64) uint64 {
	if x >= 0 && x < 1<<53 { // not NaN
		return uint64(x)
	}
	return 0
}

// programVersion is the device's program, without the word that all have.
func (d *deviceEntry) programVersion() string {
	if d.programVersionHandle == (unique.Handle[string]{}) {
		return ""
	}
	return strings.TrimPrefix(d.programVersionHandle.Value(), "agentd ")
}
