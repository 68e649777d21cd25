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
	a.judgeAt = time.Now().Add(judgeEvery)
	before := a.verdict
	a.verdict = a.cfg.Device(before)
	a.cfg.Observer.Observe(DeviceJudged{Verdict: a.verdict, Before: before})
	if b := a.endless; b != nil {
		b.barred.Store(a.barred())
		b.wake()
	}
	a.step(round.Barred{Reason: a.verdict.Declines()})
}

// barred tells whether the device's owner lets it do nothing now.
func (a *Agent) barred() bool { return a.verdict.Declines() != 0 }
