package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/wire"
)

// joins has the metrics of devices that join.
type joins struct {
	joined  prometheus.Counter
	refused *prometheus.CounterVec // by reason
	open    prometheus.Gauge

	renewed   prometheus.Counter
	unrenewed *prometheus.CounterVec // by reason
}

func newJoins(r registrar) joins {
	return joins{
		joined: r.counter("joins_total", "Devices that joined with a token; one that asks again, since the answer was "+
			"lost, counts again."),
		refused: r.counterBy("joins_refused_total", "Devices that wanted to join and were refused.", "reason",
			names(wire.JoinRefusals())),
		renewed: r.counter("renewals_total", "Devices that have got another key or certificate; one that asks again, "+
			"since the answer was lost, counts again."),
		unrenewed: r.counterBy("renewals_refused_total", "Devices that wanted another key or certificate and got none.",
			"reason", names(wire.RenewRefusals())),
		open: r.gauge("joins_open", "Whether there is an open token, with which any device may join."),
	}
}

// ObserveEnrolment implements enrol.Observer.
func (c *Coordinator) ObserveEnrolment(fact enrol.Fact) {
	switch f := fact.(type) {
	case enrol.Joined:
		c.joins.joined.Inc()
	case enrol.Refused:
		c.joins.refused.WithLabelValues(f.Reason.String()).Inc()
	case enrol.Renewed:
		c.joins.renewed.Inc()
	case enrol.RenewRefused:
		c.joins.unrenewed.WithLabelValues(f.Reason.String()).Inc()
	case enrol.Opened:
		c.joins.open.Set(0)
		if !f.Until.IsZero() {
			c.joins.open.Set(1)
		}
	}
}
