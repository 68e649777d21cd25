package replica

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Metrics lists the metrics of a replica's events.
var Metrics = []*observe.Metric{leads, leaseEndsAt, takeovers, leadsLost, storeOK}

var (
	leads = &observe.Metric{Name: "leads", Kind: observe.GaugeKind, InitialSeries: observe.UnlabeledSeries,
		InitialValue: 1,
		Help:         "Whether this coordinator is the leader (1) or on standby (0). Always 1 without a cluster."}
	leaseEndsAt = observe.OptionalGauge("lease_until_timestamp_seconds",
		"Time at which this coordinator's lease as leader expires. Absent if it has never been the leader.")
	takeovers = observe.Counter("takeovers_total", "Times that this coordinator became the leader.")
	leadsLost = observe.Counter("leads_lost_total", "Times that this coordinator lost the leadership.")
	storeOK   = &observe.Metric{Name: "cluster_ok", Kind: observe.GaugeKind, InitialSeries: observe.UnlabeledSeries,
		InitialValue: 1,
		Help: "Whether the last call to the shared state store succeeded (1) or failed (0). Always 1 without a " +
			"cluster."}
)

// Names of the alerts (conditions) that a replica raises.
const (
	standbyCondition = "standby"
	storeCondition   = "state store"
)

// StandingBy reports that this replica is on standby because another replica leads.
type StandingBy struct{ Leader string } // name of the leader; empty if unknown

// Describe implements observe.Event.
func (e StandingBy) Describe(d *observe.EventDescription) {
	leader := cmp.Or(e.Leader, "unknown")
	d.SetGauge(leads, 0)
	if e.Leader != "" {
		d.Log(observe.Info, "on standby", "leader", e.Leader)
	}
	d.RaiseNotReadyCondition(standbyCondition, "this coordinator is on standby (leader: "+leader+")",
		"no action is required: this coordinator takes over if the leader fails; send commands to the leader")
	d.ShowStatusValue(observe.ActivityStatus, "on standby (leader: "+leader+")")
}

// LeadershipGained reports that this replica leads in a new epoch.
type LeadershipGained struct {
	Epoch          wire.Epoch
	ClusterFounded bool // true if the cluster had no state before
	// TakeoverDuration is the time from the detection of the previous leader's failure until this replica leads.
	TakeoverDuration time.Duration
}

// Describe implements observe.Event.
func (e LeadershipGained) Describe(d *observe.EventDescription) {
	d.SetGauge(leads, 1)
	d.IncCounter(takeovers)
	d.Log(observe.Warn, "this coordinator is now the leader", "epoch", e.Epoch, "founded", e.ClusterFounded, "took",
		e.TakeoverDuration.Round(time.Millisecond))
	d.ResolveCondition(standbyCondition)
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("leader in epoch %d", e.Epoch))
}

// LeaseRenewed reports that the lease was renewed, with or without a commit. It occurs every 2.5 s, so it is not
// logged.
type LeaseRenewed struct{ LeaseEndsAt time.Time }

// Describe implements observe.Event.
func (e LeaseRenewed) Describe(d *observe.EventDescription) {
	d.SetGauge(leaseEndsAt, observe.UnixSeconds(e.LeaseEndsAt))
}

// LeadershipLost reports that this replica no longer leads.
type LeadershipLost struct{ Err error }

// Describe implements observe.Event.
func (e LeadershipLost) Describe(d *observe.EventDescription) {
	d.SetGauge(leads, 0)
	d.IncCounter(leadsLost)
	d.Log(observe.Warn, "this coordinator is no longer the leader", "err", e.Err)
	d.ShowStatusValue(observe.ActivityStatus, "no longer the leader")
}

// StoreFailing reports that calls of the cluster's store began to fail. They are retried.
type StoreFailing struct {
	Operation string // infinitive phrase, such as "read who leads"
	Err       error
}

// Describe implements observe.Event.
func (e StoreFailing) Describe(d *observe.EventDescription) {
	d.SetGauge(storeOK, 0)
	d.Log(observe.Error, "calls to the cluster's state store are failing", "operation", e.Operation, "err", e.Err)
	d.RaiseNotReadyCondition(storeCondition, fmt.Sprintf(
		"the cluster's state store is failing: cannot %s: %v", e.Operation,
		e.Err),
		"check the servers in cluster.nats; the call is retried until it succeeds")
}

// StoreRecovered reports that calls of the cluster's store succeed again.
type StoreRecovered struct{}

// Describe implements observe.Event.
func (StoreRecovered) Describe(d *observe.EventDescription) {
	d.SetGauge(storeOK, 1)
	d.Log(observe.Info, "cluster's state store works again")
	d.ResolveCondition(storeCondition)
}
