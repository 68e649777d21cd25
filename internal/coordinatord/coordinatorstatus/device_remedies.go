package coordinatorstatus

import (
	"fmt"
	"strings"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// In the remedies below, %s is replaced by the id of the device.

// remedyByRejection contains the action after which the coordinator accepts a device's messages again.
var remedyByRejection = map[wire.MessageRejectionReason]string{
	wire.RejectedUnlistedAgent: "enrol the device: coordinator enrol --device %s",
	wire.RejectedOtherKey: "give the device a new key: run `coordinator devices rotate %s` here, and the printed " +
		"command on the device",
	wire.RejectedOldEpoch: "the device has lost its state folder: coordinator devices reset %s",
	wire.RejectedClone: "two devices use this identity: stop one of them, remove its state folder, and enrol it " +
		"under another id",
}

// remedyByUnfitReason contains the action after which a device can do the task.
var remedyByUnfitReason = map[wire.DeclineReason]string{
	wire.DeclineBadData: "list all errors in the data, on the device: agentd data check",
	wire.DeclineTooFewRows: "collect more rows on the device, or lower task.min_rows: coordinator task set " +
		"task.min_rows=N",
	wire.DeclineUnsupported: "upgrade agentd on the device; `agentd status` there shows what this version does not " +
		"support",
	wire.DeclineFetchFailed: "find out why the device cannot download the model, on the device: agentd doctor",
	wire.DeclineTrafficBudget: "wait for the next month, or raise budget.bytes_per_month in agentd.yaml on the " +
		"device",
	wire.DeclineBusy:       ownerRuleRemedy,
	wire.DeclineHot:        ownerRuleRemedy,
	wire.DeclineLowBattery: ownerRuleRemedy,
	wire.DeclineLowMemory:  ownerRuleRemedy,
	wire.DeclineTimeWindow: ownerRuleRemedy,
	wire.DeclineStorageFailing: "the device cannot write to its state folder: free disk space or mount the disk " +
		"there; `agentd doctor` shows the folder",
}

const (
	ownerRuleRemedy = "a rule of the device's owner forbids training now: wait, or change the section device in " +
		"agentd.yaml on the device"
	otherUnfitRemedy    = "find the cause on the device: agentd status"
	otherProtocolRemedy = "upgrade the older program: agentd on the device, or the coordinator"
	noReplyRemedy       = "see on the device why it does not accept the announcement: agentd status"
	neverSeenRemedy     = "start agentd on the device: `agentd service start`; if it runs, find the cause there: " +
		"`agentd doctor`"
	disconnectedRemedy = "check the power and the network of the device, and its clock; then run on it: agentd doctor"
	offlineRemedy      = "start agentd on the device: agentd service start"
	silentRemedy       = "the device does not answer although it is connected: restart agentd on it"
)

// remedyByLeaveReason contains the action after which a device returns that has left.
var remedyByLeaveReason = map[round.LeaveReason]string{
	round.LeftOffline:        offlineRemedy,
	round.LeftConnectionLost: disconnectedRemedy,
	round.LeftSilent:         silentRemedy,
}

// remedyBySidelineReason contains the action that prevents the next exclusion of a device.
var remedyBySidelineReason = map[round.SidelineReason]string{
	round.SidelinedSilent: "the device was too slow or was disconnected in its last round: wait, raise " +
		"round.deadline, or check the device's network",
	round.SidelinedSpoiledModel: "the update of the device made the model unusable: check its data, on the device: " +
		"agentd data check",
}

// remedy returns the one thing to do so that a device takes part in rounds, or "" if the device takes part or was
// revoked. state is the state of the device in the list.
func (d *deviceEntry) remedy(agent, state string, repliesMissing bool) string {
	text := ""
	switch {
	case state == deviceTraining:
	case d.rejectionReason != 0:
		text = remedyByRejection[d.rejectionReason]
	case d.protocolVersion != 0:
		text = otherProtocolRemedy
	case state == deviceUnfit:
		text = otherUnfitRemedy
		if known, ok := remedyByUnfitReason[d.unfit.decline]; ok {
			text = known
		}
	case state == deviceSitsOut:
		text = remedyBySidelineReason[d.sidelineReason]
	case state == deviceAbsent && repliesMissing:
		text = noReplyRemedy
	case state == deviceAbsent:
		text = remedyByLeaveReason[d.leaveReason]
		if text == "" && d.leaveReason != round.LeftRevoked {
			text = disconnectedRemedy
		}
	}
	if strings.Contains(text, "%s") {
		text = fmt.Sprintf(text, agent)
	}
	return text
}
