package agentround

import (
	"maps"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// Estimates of the network traffic of a round, apart from the model and the update.
const (
	// controlTrafficBytes is the traffic, in bytes, of the hello messages, invitation, credit, answers, presence
	// messages and pings of a round.
	controlTrafficBytes = 16 << 10
	// overheadBytesPerChunk is the traffic, in bytes, that is needed for each chunk of an update in addition to its
	// data: headers, packets, request and answer.
	overheadBytesPerChunk = 1000
	// bytesPerOverheadByte is the number of payload bytes for each byte of network overhead, such as packet headers.
	bytesPerOverheadByte = 16
)

// EstimateRoundBytes returns the estimated traffic, in bytes, of the announced or the next round: model, update,
// announcements and answers. It does not include retransmissions. It returns 0 before the first announcement.
func (a *Machine) EstimateRoundBytes() uint64 {
	if a.currentAnnouncement == nil {
		return 0
	}
	ann := &a.currentAnnouncement.Announcement
	// The update is as large as the model, since it has one element per model parameter.
	update := ann.BaseModel.Length
	if ann.Kind == wire.KindStatistics {
		update = a.task.statisticsUpdateBytes
	}
	// Count the model and the task twice if the announcement contains them, because an announcement arrives in each
	// phase, both for this round and for the next.
	bytes := controlTrafficBytes + networkBytesOfVector(update) +
		2*networkBytesOfVector(uint32(len(ann.BaseModel.Inline)+len(ann.Task.Inline)))
	if ann.Kind == wire.KindTraining && len(ann.BaseModel.Inline) == 0 {
		bytes += networkBytesOfVector(ann.BaseModel.Length)
	}
	return bytes
}

// networkBytesOfVector returns the traffic, in bytes, for a vector of the given encoded size.
func networkBytesOfVector(bytes uint32) uint64 {
	n := uint64(bytes)
	return n + n/bytesPerOverheadByte + uint64(wire.ChunkCount(int(bytes)))*overheadBytesPerChunk
}

// unfitReason returns the reason why the agent cannot start the announced round; 0 means that it can. Work that has
// begun continues, whatever the budget and the owner's rules are.
func (a *Machine) unfitReason() wire.DeclineReason {
	switch {
	case a.task.unfitReason != 0 || a.currentWork != nil && a.currentWork.state < workAccepted:
		return a.task.unfitReason
	case a.currentAnnouncement != nil && a.currentAnnouncement.Announcement.Extra.CheckSupported() != nil:
		return wire.DeclineUnsupported
	case a.positionSaveFailed:
		return wire.DeclineStorageFailing
	case len(a.declineReasonByOwnerRule) > 0:
		return a.declineReasonByOwnerRule[slices.Min(slices.Collect(maps.Keys(a.declineReasonByOwnerRule)))]
	case a.EstimateRoundBytes() > a.uplinkBytesLeft:
		return wire.DeclineTrafficBudget
	}
	return 0
}

// applyOwnerRule records the reason for which a rule of the owner forbids rounds, or removes it if the rule allows
// rounds.
func (a *Machine) applyOwnerRule(e OwnerRuleChanged) {
	if e.Reason == 0 {
		delete(a.declineReasonByOwnerRule, e.RuleName)
		return
	}
	if a.declineReasonByOwnerRule == nil {
		a.declineReasonByOwnerRule = map[string]wire.DeclineReason{}
	}
	a.declineReasonByOwnerRule[e.RuleName] = e.Reason
}

// setUplinkBudget sets the number of bytes that the agent may still send. It schedules a hello message if the agent can
// now participate, or no longer can.
func (a *Machine) setUplinkBudget(e UplinkBudgetChanged) {
	before := a.unfitReason()
	a.uplinkBytesLeft = e.BytesLeft
	a.reportIfUplinkBudgetTooSmall()
	if a.unfitReason() != before {
		a.isHelloDue = true
	}
}

// reportIfUplinkBudgetTooSmall emits an event, once, when the budget no longer suffices for a round.
func (a *Machine) reportIfUplinkBudgetTooSmall() {
	short := a.unfitReason() == wire.DeclineTrafficBudget
	if short && !a.uplinkBudgetTooSmall {
		a.reportEvent(UplinkBudgetTooSmall{Round: a.currentAnnouncement.Position.Round,
			RoundBytes: a.EstimateRoundBytes(),
			BytesLeft:  a.uplinkBytesLeft})
	}
	a.uplinkBudgetTooSmall = short
}
