package agent

import (
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// selfTest lets the test of the broker see an event, and reports whether it
// was the test's own.
func (a *Agent) selfTest(e mqtt.Event) bool {
	if a.test == nil {
		return false
	}
	own, ended := a.test.Step(time.Now(), e)
	a.selfTested(ended)
	return own
}

func (a *Agent) tickSelfTest() {
	if a.test != nil {
		a.selfTested(a.test.Tick(time.Now()))
	}
}

func (a *Agent) selfTested(ended *mqtt.SelfTested) {
	if ended != nil {
		a.cfg.Observer.Observe(BrokerTested{*ended})
	}
}
