package coordinator

import (
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
)

// brokerLinkMonitor reports events about the connection to the broker.
type brokerLinkMonitor struct {
	observer       observe.Observer
	onChange       func(up bool)        // nil if nobody follows the link
	selfTest       *mqtt.BrokerSelfTest // nil if the self-test is disabled
	refusedFilters mqtt.RefusedFilters  // except those of the publisher
	isUsable       bool                 // there is a link, and the coordinator may work over it
}

// reportConnectionChange reports that the connection is up, or down because of err.
func (l *brokerLinkMonitor) reportConnectionChange(up bool, err error) {
	l.observer.Observe(host.BrokerLinkChanged{IsConnected: up, Err: err})
	if l.onChange != nil {
		l.onChange(up)
	}
}

// reportRefusedFilters reports the filters that the broker refuses, if an event changes them.
func (l *brokerLinkMonitor) reportRefusedFilters(e mqtt.Event) {
	if l.refusedFilters.Step(e) {
		l.observer.Observe(host.RefusedSubscriptionsChanged{Filters: l.refusedFilters.List()})
	}
}

// passToSelfTest passes an event to the self-test, and reports whether the event belongs to that alone.
func (l *brokerLinkMonitor) passToSelfTest(now time.Time, e mqtt.Event) (own bool) {
	own, ended := l.selfTest.Step(now, e)
	l.reportSelfTestOutcome(ended)
	return own
}

// tickSelfTest is called when a deadline of the coordinator has passed.
func (l *brokerLinkMonitor) tickSelfTest(now time.Time) {
	l.reportSelfTestOutcome(l.selfTest.Tick(now))
}

func (l *brokerLinkMonitor) reportSelfTestOutcome(ended *mqtt.SelfTestReport) {
	if ended != nil {
		l.observer.Observe(host.BrokerSelfTestEnded{SelfTestReport: *ended})
	}
}
