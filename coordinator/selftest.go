package coordinator

import (
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// selfTest lets the test of the broker see an event, and reports whether it
// was the test's own.
func (c *Coordinator) selfTest(e mqtt.Event) bool {
	if c.test == nil {
		return false
	}
	own, ended := c.test.Step(time.Now(), e)
	c.selfTested(ended)
	return own
}

func (c *Coordinator) tickSelfTest() {
	if c.test != nil {
		c.selfTested(c.test.Tick(time.Now()))
	}
}

func (c *Coordinator) selfTested(ended *mqtt.SelfTested) {
	if ended != nil {
		c.cfg.Observer.Observe(BrokerTested{*ended})
	}
}
