package agent

import (
	"time"

	"github.com/fedmesh/fedmesh/round"
)

// judgeEvery is the time between two looks at the device.
const judgeEvery = 30 * time.Second

// judge holds the rules of the device's owner against what the system tells.
func (a *Agent) judge() {
	if a.cfg.Device == nil {
		return
	}
	a.judgeAt = a.owner.Now().Add(judgeEvery)
	before := a.deviceVerdict
	a.deviceVerdict = a.cfg.Device(before)
	a.cfg.Observer.Observe(DeviceJudged{Verdict: a.deviceVerdict, Before: before})
	a.holdBlock()
	a.step(round.Barred{Reason: a.deviceVerdict.Declines()})
}

// holdBlock has a block without an end rest, or go on.
func (a *Agent) holdBlock() {
	if b := a.endless; b != nil && b.barred != a.barred() {
		a.bar(b, a.barred())
	}
}

// barred tells whether a block without an end must rest: the device's owner lets it do nothing now, or it mixes over an
// uplink that may carry nothing more.
func (a *Agent) barred() bool { return a.deviceVerdict.Declines() != 0 || a.mesh.shared && a.spent() }
