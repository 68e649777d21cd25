package coordinator

import (
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
)

// brokerLink reports events about the connection to the broker.
type brokerLink struct {
	observer       observe.Observer
	onChange       func(up bool)       // nil if nobody follows the link
	selfTest       *mqtt.SelfTest      // nil if the self-test is disabled
	refusedFilters mqtt.RefusedFilters // except those of the publisher
	works          bool                // there is a link, and the coordinator may work over it
}

// reportChange reports that the connection is up, or down because of err.
func (l *brokerLink) reportChange(up bool, err error) {
	l.observer.Observe(host.BrokerLinkChanged{IsConnected: up, Err: err})
	if l.onChange != nil {
		l.onChange(up)
	}
}

// reportRefused reports the filters that the broker refuses, if an event changes them.
func (l *brokerLink) reportRefused(e mqtt.Event) {
	if l.refusedFilters.Step(e) {
		l.observer.Observe(host.RefusedSubscriptionsChanged{Filters: l.refusedFilters.List()})
	}
}

// test passes an event to the self-test, and reports whether the event belongs to that alone.
func (l *brokerLink) test(now time.Time, e mqtt.Event) (own bool) {
	own, ended := l.selfTest.Step(now, e)
	l.reportTest(ended)
	return own
}

// tick is called when a deadline of the coordinator has passed.
func (l *brokerLink) tick(now time.Time) { l.reportTest(l.selfTest.Tick(now)) }

func (l *brokerLink) reportTest(ended *mqtt.SelfTestOutcome) {
	if ended != nil {
		l.observer.Observe(host.BrokerSelfTestEnded{SelfTestOutcome: *ended})
	}
}
