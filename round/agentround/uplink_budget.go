package agentround

import (
	"maps"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// Bytes on the network that a round moves beside its vectors.
const (
	// controlTrafficBytes is hellos, invitation, credit, answers, presence and pings.
	controlTrafficBytes = 16 << 10
	// overheadBytesPerChunk is the headers of a chunk and its packets, and what asks for it
	// and answers it.
	overheadBytesPerChunk = 1000
	// bytesPerOverheadByte is what the network adds to each, one byte for this many.
	bytesPerOverheadByte = 16
)

// EstimateRoundBytes returns how many bytes the round that is announced, or comes next,
// will move over this agent's uplink: model, update, announcements and answers.
// It is 0 before an announcement, and leaves out what is sent again.
func (a *Machine) EstimateRoundBytes() uint64 {
	if a.currentAnnouncement == nil {
		return 0
	}
	ann := &a.currentAnnouncement.Announcement
	update := ann.BaseModel.Length // an update has an entry for each of the model's
	if ann.Kind == wire.KindStatistics {
		update = a.task.statisticsUpdateBytes
	}
	// The announcement comes in each phase, for this round and the next.
	bytes := controlTrafficBytes + networkBytesOfVector(update) +
		2*networkBytesOfVector(uint32(len(ann.BaseModel.Inline)+len(ann.Task.Inline)))
	if ann.Kind == wire.KindTraining && len(ann.BaseModel.Inline) == 0 {
		bytes += networkBytesOfVector(ann.BaseModel.Length)
	}
	return bytes
}

// networkBytesOfVector returns the traffic for a vector of this many bytes, in bytes.
func networkBytesOfVector(bytes uint32) uint64 {
	n := uint64(bytes)
	return n + n/bytesPerOverheadByte + uint64(wire.ChunkCount(int(bytes)))*overheadBytesPerChunk
}

// unfitReason returns why the agent can take no part in the round that is announced;
// what it is at work on it goes on with, whatever is left.
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

// applyOwnerRule notes whether one of the owner's rules bars the device.
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

// setUplinkBudget takes what is left of the budget. The coordinator hears of it when
// it makes a difference.
func (a *Machine) setUplinkBudget(e UplinkBudgetChanged) {
	before := a.unfitReason()
	a.uplinkBytesLeft = e.BytesLeft
	a.reportIfUplinkBudgetTooSmall()
	if a.unfitReason() != before {
		a.isHelloDue = true
	}
}

// reportIfUplinkBudgetTooSmall reports that the budget does not allow a round, once.
func (a *Machine) reportIfUplinkBudgetTooSmall() {
	short := a.unfitReason() == wire.DeclineTrafficBudget
	if short && !a.uplinkBudgetTooSmall {
		a.reportEvent(UplinkBudgetTooSmall{Round: a.currentAnnouncement.Position.Round,
			RoundBytes: a.EstimateRoundBytes(),
			BytesLeft:  a.uplinkBytesLeft})
	}
	a.uplinkBudgetTooSmall = short
}
