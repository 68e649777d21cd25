package replica

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Metrics are the metrics of the events of a replica.
var Metrics = []*observe.Metric{leads, leaseEndsAt, takeovers, leadsLost, storeOK}

var (
	leads = &observe.Metric{Name: "leads", Kind: observe.GaugeKind, InitialSeries: observe.UnlabeledSeries,
		InitialValue: 1,
		Help:         "Whether this coordinator is the leader (1) or on standby (0). Always 1 without a cluster."}
	leaseEndsAt = observe.OptionalGauge("lease_until_timestamp_seconds",
		"Expiry of the leader's lease. Absent if this coordinator has never been the leader.")
	takeovers = observe.Counter("takeovers_total", "Times that this coordinator became the leader.")
	leadsLost = observe.Counter("leads_lost_total", "Times that this coordinator lost the leadership.")
	storeOK   = &observe.Metric{Name: "cluster_ok", Kind: observe.GaugeKind, InitialSeries: observe.UnlabeledSeries,
		InitialValue: 1,
		Help: "Whether the last call to the shared state store succeeded (1) or failed (0). Always 1 without a " +
			"cluster."}
)

// The names of conditions.
const (
	standbyCondition = "standby"
	storeCondition   = "state store"
)

// StandingBy: another replica leads.
type StandingBy struct{ Leader string } // empty while it is not known which

// Describe implements observe.Event.
func (e StandingBy) Describe(d *observe.EventDescription) {
	leader := cmp.Or(e.Leader, "a coordinator that is not known yet")
	d.SetGauge(leads, 0)
	if e.Leader != "" {
		d.Log(observe.Info, "standing by", "leader", e.Leader)
	}
	d.RaiseNotReadyCondition(standbyCondition, "this coordinator stands by: "+leader+" leads",
		"send commands to the leader; this coordinator takes over when the leader is gone")
	d.ShowStatusValue(observe.ActivityStatus, "stands by; "+leader+" leads")
}

// LeadershipGained: this replica leads, in an epoch.
type LeadershipGained struct {
	Epoch          wire.Epoch
	ClusterFounded bool // the cluster was empty
	// TakeoverDuration is the time since the leader before has stepped down or counts as gone, without the time that
	// this replica took to detect that.
	TakeoverDuration time.Duration
}

// Describe implements observe.Event.
func (e LeadershipGained) Describe(d *observe.EventDescription) {
	d.SetGauge(leads, 1)
	d.IncCounter(takeovers)
	d.Log(observe.Warn, "this coordinator leads", "epoch", e.Epoch, "founded", e.ClusterFounded, "took",
		e.TakeoverDuration.Round(time.Millisecond))
	d.ResolveCondition(standbyCondition)
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("leads in epoch %d", e.Epoch))
}

// LeaseRenewed: the lease was renewed, by a commit or without one. It happens every 2.5 s, so it is not logged.
type LeaseRenewed struct{ LeaseEndsAt time.Time }

// Describe implements observe.Event.
func (e LeaseRenewed) Describe(d *observe.EventDescription) {
	d.SetGauge(leaseEndsAt, observe.UnixSeconds(e.LeaseEndsAt))
}

// LeadershipLost: this replica does not lead any more.
type LeadershipLost struct{ Err error }

// Describe implements observe.Event.
func (e LeadershipLost) Describe(d *observe.EventDescription) {
	d.SetGauge(leads, 0)
	d.IncCounter(leadsLost)
	d.Log(observe.Warn, "this coordinator no longer leads", "err", e.Err)
	d.ShowStatusValue(observe.ActivityStatus, "no longer leads")
}

// StoreFailing: the store that keeps the state of the replicas has begun to fail. Its calls are tried again.
type StoreFailing struct {
	Operation string // an infinitive
	Err       error
}

// Describe implements observe.Event.
func (e StoreFailing) Describe(d *observe.EventDescription) {
	d.SetGauge(storeOK, 0)
	d.Log(observe.Error, "cluster state store fails", "operation", e.Operation, "err", e.Err)
	d.RaiseNotReadyCondition(storeCondition, fmt.Sprintf("the cluster's state store fails: cannot %s: %v", e.Operation,
		e.Err),
		"check the servers in cluster.nats: the call is tried again until it succeeds")
}

// StoreRecovered: the store works again.
type StoreRecovered struct{}

// Describe implements observe.Event.
func (StoreRecovered) Describe(d *observe.EventDescription) {
	d.SetGauge(storeOK, 1)
	d.Log(observe.Info, "cluster state store works again")
	d.ResolveCondition(storeCondition)
}
