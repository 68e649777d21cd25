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

// deviceEntry is a row of the device table. It needs about 250 bytes, plus the texts of an unfit device (see
// BenchmarkDevices in package coordinatord).
type deviceEntry struct {
	deviceHistory
	protocolVersion     uint8 // protocol version of the device if it differs from ours; 0 if it is the same
	rootDocumentVersion wire.RootVersion
	hasSaidHello        bool // the device has sent a hello and has not left since
	// Unix time of the newest online presence that no hello has followed; 0 if there is none
	onlineWithoutHelloSince int64
	leaveReason             round.LeaveReason
	unfit                   *unfitAgent   // why the device cannot do the task; nil if it has reported no problem
	largeUpdates            *largeUpdates // nil if the last update was not unusually large
	lastSidelinedRound      wire.RoundID  // last round from which the device is excluded; 0 if none
	sidelineReason          round.SidelineReason
	rejectionReason         wire.MessageRejectionReason // reason of the last rejection; 0 if messages are accepted
	rejectedAt              int64                       // Unix time of the last rejection
	programVersionHandle    unique.Handle[string]
	rows                    uint64
	predictionModelVersion  uint64  // version of the model with which the device predicts; 0 if not reported
	leftOutUpdates          uint32  // number of updates left out of all models since this coordinator started
	clippedUpdates          uint32  // number of updates that were clipped in models since this coordinator started
	secondsPerLocalStep     float64 // duration of a local step in seconds; NaN if not reported
	budgetUsedBytes         float64 // bytes of the monthly budget that the device has used; NaN if not reported
	batteryRatio            float64 // battery charge from 0 to 1; NaN if not reported
	temperature             float64 // temperature in °C; NaN if not reported
}

// findOrAddDevice returns the entry of an agent and adds it if it is missing.
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
			m.UnusableValues, m.TotalValues, f.Reason}
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
		// only devices in the agent list get an entry
		if d := v.deviceByID[f.Agent]; d != nil || f.Reason != wire.RejectedUnlistedAgent {
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

// recordFailedTraining counts the round as failed for a device that is training in it.
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

// cloneProblemSeconds is the number of seconds for which the table shows that two devices use the same identity.
const cloneProblemSeconds = 2 * 60 * 60

// recordSignOfLife records that an accepted message shows a device to be alive. A retained presence message is evidence
// only if its state is online, because the broker replaces it when the device's connection is lost.
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
		// A device with the same identity was reported, and messages of one of the two devices are still accepted, so
		// the problem is kept for cloneProblemSeconds.
		d.lastSeenAt-d.rejectedAt > cloneProblemSeconds {
		d.rejectionReason = 0
	}
	v.hasUnsavedChanges = true
}

// recordAgentReport records a metrics report. The values come from the agent and are not trusted.
func (v *StatusTracker) recordAgentReport(f coordinator.AgentReportReceived) {
	d := v.findOrAddDevice(f.Agent)
	d.programVersionHandle = unique.Make(f.Report.SoftwareVersion)
	traffic := 0.
	d.budgetUsedBytes, d.batteryRatio, d.temperature = math.NaN(), math.NaN(), math.NaN()
	for _, r := range f.Report.Metrics {
		switch metrics.MetricNameByID(r.ID) {
		case "agentd_samples":
			d.rows = countFromReportedValue(r.Value)
		case "agentd_model_in_use_version":
			d.predictionModelVersion = countFromReportedValue(r.Value)
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

// countFromReportedValue converts a reported value to a count. It returns 0 for an invalid value.
func countFromReportedValue(x float64) uint64 {
	if x >= 0 && x < 1<<53 { // also rejects NaN
		return uint64(x)
	}
	return 0
}

// programVersion returns the version of the device's program without the prefix "agentd ".
func (d *deviceEntry) programVersion() string {
	if d.programVersionHandle == (unique.Handle[string]{}) {
		return ""
	}
	return strings.TrimPrefix(d.programVersionHandle.Value(), "agentd ")
}
