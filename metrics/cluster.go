package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator/replica"
)

// cluster has the metrics of a coordinator among several.
type cluster struct {
	leads     measure
	lease     measure
	takeovers prometheus.Counter
	lost      prometheus.Counter
	engineOK  measure
}

func newCluster(r registrar) cluster {
	return cluster{
		leads: r.measure("leads", "Whether this coordinator leads (1) or stands by (0); absent where it is the only "+
			"one."),
		lease: r.measure("lease_until_timestamp_seconds", "When the lead is over unless it is renewed; absent where "+
			"the coordinator has not led."),
		takeovers: r.counter("takeovers_total", "How often this coordinator has taken the lead."),
		lost:      r.counter("leads_lost_total", "How often this coordinator has lost the lead."),
		engineOK: r.measure("cluster_ok", "Whether the engine that keeps the state of several coordinators does so "+
			"(1), or the last call has failed (0); absent where there is only one."),
	}
}

// ObserveReplica implements replica.Observer. Several goroutines may call it.
func (c *Coordinator) ObserveReplica(fact replica.Fact) {
	m := &c.cluster
	switch f := fact.(type) {
	case replica.StandsBy:
		m.leads.set(0)
	case replica.Leads:
		m.leads.set(1)
		m.takeovers.Inc()
	case replica.Renewed:
		m.lease.set(float64(f.Until.UnixMilli()) / 1000)
		m.engineOK.set(1)
	case replica.Lost:
		m.leads.set(0)
		m.lost.Inc()
	case replica.Failing:
		m.engineOK.set(0)
	case replica.Mended:
		m.engineOK.set(1)
	}
}
