package agent

import (
	"time"

	"github.com/fedmesh/fedmesh/round"
)

// deviceCheckInterval is the time between two looks at the device.
const deviceCheckInterval = 30 * time.Second

// checkDeviceRules holds the rules of the device's owner against what the system tells.
func (a *Agent) checkDeviceRules() {
	if a.cfg.JudgeDevice == nil {
		return
	}
	a.deviceCheckAt = a.owner.Now().Add(deviceCheckInterval)
	before := a.deviceVerdict
	a.deviceVerdict = a.cfg.JudgeDevice(before)
	a.cfg.Observer.Observe(DeviceRulesChecked{Verdict: a.deviceVerdict, PreviousVerdict: before})
	a.updateBlockRest()
	a.stepRoundMachine(round.OwnerBarredRounds{Reason: a.deviceVerdict.DeclineReason()})
}

// updateBlockRest has a block without an end rest, or go on.
func (a *Agent) updateBlockRest() {
	if b := a.endless; b != nil && b.mustRest != a.blockMustRest() {
		a.requestRest(b, a.blockMustRest())
	}
}

// blockMustRest tells whether a block without an end must rest: the device's owner lets it do nothing now, or it mixes
// over an uplink that may carry nothing more.
func (a *Agent) blockMustRest() bool {
	return a.deviceVerdict.DeclineReason() != 0 || a.mesh.sharesUplink && a.isBudgetSpent()
}
