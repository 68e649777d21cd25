package coordinatormetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// joins has the metrics of devices that join.
type joins struct {
	joined          prometheus.Counter
	refused         *prometheus.CounterVec // by reason
	openTokenExists prometheus.Gauge

	renewed         prometheus.Counter
	refusedRenewals *prometheus.CounterVec // by reason
}

func newJoins(r metrics.Registrar) joins {
	return joins{
		joined: r.Counter("joins_total", "Devices that joined with a token; one that asks again, since the answer was "+
			"lost, counts again."),
		refused: r.CounterByLabel("joins_refused_total", "Devices that wanted to join and were refused.", "reason",
			metrics.StringerNames(wire.EnrolmentRefusals())),
		renewed: r.Counter("renewals_total", "Devices that have got another key or certificate; one that asks again, "+
			"since the answer was lost, counts again."),
		refusedRenewals: r.CounterByLabel("renewals_refused_total",
			"Devices that wanted another key or certificate and got none.",
			"reason", metrics.StringerNames(wire.RenewalRefusals())),
		openTokenExists: r.Gauge("joins_open", "Whether there is an open token, with which any device may join."),
	}
}

// observeEnrolment reads the events of enrolment.
func (c *Coordinator) observeEnrolment(fact observe.Event) {
	switch f := fact.(type) {
	case enrol.DeviceJoined:
		c.joins.joined.Inc()
	case enrol.JoinRefused:
		c.joins.refused.WithLabelValues(f.Reason.String()).Inc()
	case enrol.CredentialsRenewed:
		c.joins.renewed.Inc()
	case enrol.RenewRefused:
		c.joins.refusedRenewals.WithLabelValues(f.Reason.String()).Inc()
	case enrol.OpenJoinChanged:
		c.joins.openTokenExists.Set(0)
		if !f.OpenUntil.IsZero() {
			c.joins.openTokenExists.Set(1)
		}
	}
}
