package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator/replica"
)

// cluster has the metrics of a coordinator among several.
type cluster struct {
	leads     prometheus.Gauge
	lease     measure
	takeovers prometheus.Counter
	lost      prometheus.Counter
	engineOK  prometheus.Gauge
}

func newCluster(r registrar) cluster {
	c := cluster{
		leads: r.gauge("leads", "Whether this coordinator leads (1), as one that is alone does, or stands by (0)."),
		lease: r.measure("lease_until_timestamp_seconds", "When the lead is over unless it is renewed; absent where "+
			"the coordinator has not led."),
		takeovers: r.counter("takeovers_total", "How often this coordinator has taken the lead."),
		lost:      r.counter("leads_lost_total", "How often this coordinator has lost the lead."),
		engineOK: r.gauge("cluster_ok", "Whether the engine that keeps the state of several coordinators does so "+
			"(1), or the last call has failed (0); 1 where there is only one."),
	}
	c.leads.Set(1)
	c.engineOK.Set(1)
	return c
}

// ObserveReplica implements replica.Observer. Several goroutines may call it.
func (c *Coordinator) ObserveReplica(fact replica.Fact) {
	m := &c.cluster
	switch f := fact.(type) {
	case replica.StandsBy:
		m.leads.Set(0)
	case replica.Leads:
		m.leads.Set(1)
		m.takeovers.Inc()
	case replica.Renewed:
		m.lease.set(float64(f.Until.UnixMilli()) / 1000)
	case replica.Lost:
		m.leads.Set(0)
		m.lost.Inc()
	case replica.Failing:
		m.engineOK.Set(0)
	case replica.Mended:
		m.engineOK.Set(1)
	}
}
