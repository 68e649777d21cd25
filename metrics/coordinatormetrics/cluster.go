package coordinatormetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/metrics"
)

// cluster has the metrics of a coordinator among several.
type cluster struct {
	leads           prometheus.Gauge
	leaseEndsAt     metrics.OptionalGauge
	takeovers       prometheus.Counter
	lostLeaderships prometheus.Counter
	stateStoreOK    prometheus.Gauge
}

func newCluster(r metrics.Registrar) cluster {
	c := cluster{
		leads: r.Gauge("leads", "Whether this coordinator leads (1), as one that is alone does, or stands by (0)."),
		leaseEndsAt: r.OptionalGauge("lease_until_timestamp_seconds",
			"When the lead is over unless it is renewed; absent where "+
				"the coordinator has not led."),
		takeovers:       r.Counter("takeovers_total", "How often this coordinator has taken the lead."),
		lostLeaderships: r.Counter("leads_lost_total", "How often this coordinator has lost the lead."),
		stateStoreOK: r.Gauge("cluster_ok", "Whether the engine that keeps the state of several coordinators does so "+
			"(1), or the last call has failed (0); 1 where there is only one."),
	}
	c.leads.Set(1)
	c.stateStoreOK.Set(1)
	return c
}

// ObserveReplica implements replica.Observer. Several goroutines may call it.
func (c *Coordinator) ObserveReplica(fact replica.Fact) {
	m := &c.cluster
	switch f := fact.(type) {
	case replica.StandingBy:
		m.leads.Set(0)
	case replica.LeadershipGained:
		m.leads.Set(1)
		m.takeovers.Inc()
	case replica.LeaseRenewed:
		m.leaseEndsAt.Set(float64(f.Until.UnixMilli()) / 1000)
	case replica.LeadershipLost:
		m.leads.Set(0)
		m.lostLeaderships.Inc()
	case replica.StoreFailing:
		m.stateStoreOK.Set(0)
	case replica.StoreRecovered:
		m.stateStoreOK.Set(1)
	}
}
