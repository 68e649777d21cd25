package coordinator

import (
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
)

// brokerLinkMonitor reports events about the connection to the broker.
type brokerLinkMonitor struct {
	observer observe.Observer
	onChange func(up bool)        // called when the connection changes; may be nil
	selfTest *mqtt.BrokerSelfTest // self-test of the connection; nil if disabled
	// refusedFilters contains the subscriptions that the broker refused, except subscriptions of the publisher.
	refusedFilters mqtt.RefusedFilters
	isUsable       bool // true if the connection is up and the coordinator may work over it
}

// reportConnectionChange reports that the connection is up, or that it is down because of err.
func (l *brokerLinkMonitor) reportConnectionChange(up bool, err error) {
	l.observer.Observe(host.BrokerLinkChanged{IsConnected: up, Err: err})
	if l.onChange != nil {
		l.onChange(up)
	}
}

// reportRefusedFilters updates the set of refused subscriptions and reports a change.
func (l *brokerLinkMonitor) reportRefusedFilters(e mqtt.Event) {
	if l.refusedFilters.Step(e) {
		l.observer.Observe(host.RefusedSubscriptionsChanged{Filters: l.refusedFilters.List()})
	}
}

// passToSelfTest passes an event to the self-test. It returns true if no other component needs the event.
func (l *brokerLinkMonitor) passToSelfTest(now time.Time, e mqtt.Event) (own bool) {
	own, ended := l.selfTest.Step(now, e)
	l.reportSelfTestOutcome(ended)
	return own
}

// tickSelfTest handles an expired deadline of the self-test.
func (l *brokerLinkMonitor) tickSelfTest(now time.Time) {
	l.reportSelfTestOutcome(l.selfTest.Tick(now))
}

func (l *brokerLinkMonitor) reportSelfTestOutcome(ended *mqtt.SelfTestReport) {
	if ended != nil {
		l.observer.Observe(host.BrokerSelfTestEnded{SelfTestReport: *ended})
	}
}
