package coordinatord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/doctor"
	"github.com/fedmesh/fedmesh/wire"
)

// DoctorTargets returns the brokers and folders that the doctor examines for a coordinator. open is
// Options.OpenReplicaStore.
func DoctorTargets(s *coordinatorsettings.ConfigFile, open func(*coordinatorsettings.ConfigFile) (replica.KeyValueStore,
	error)) (
	[]*doctor.Target, error) {
	cfg, err := s.CoordinatorConfig()
	if err != nil {
		return nil, err
	}
	agents, err := s.CountAgents()
	if err != nil {
		return nil, err
	}
	broker, err := daemon.DoctorBrokerTarget(&s.Broker, cfg.Topics, wire.CoordinatorID)
	if err != nil {
		return nil, err
	}
	broker.SubscribedFilters = []string{cfg.Topics.Announcement(), cfg.Topics.AllUpdatePartsFilter(),
		cfg.Topics.AllPresencesFilter(),
		cfg.Topics.AllAgentToCoordinatorFilter()}
	broker.NeedsRetainedMessages, broker.WantedQueueLength = true, min(max(minQueueLength, agents), maxQueueLength)
	t := &doctor.Target{
		Program: "coordinator", StateDir: cfg.StateDir,
		NeededFreeBytes: int64(cfg.MaxBufferedUpdateBytes) + minFreeBytes,
		Broker:          broker,
	}
	if s.Cluster.IsEnabled() {
		t.CheckCluster = func(ctx context.Context) ([]doctor.Finding, bool) { return checkClusterLeader(ctx, s, open) }
	}
	return []*doctor.Target{t}, nil
}

// stateStoreTimeout is the time limit for a reply from the state store.
const stateStoreTimeout = 20 * time.Second

// checkClusterLeader looks up which coordinator of the cluster is the leader. It also reports whether there is a
// leader, because the doctor must not take over the leader's broker session.
func checkClusterLeader(ctx context.Context, s *coordinatorsettings.ConfigFile,
	open func(*coordinatorsettings.ConfigFile) (replica.KeyValueStore, error)) ([]doctor.Finding, bool) {
	found := func(state doctor.FindingStatus, mend, format string, args ...any) []doctor.Finding {
		return []doctor.Finding{{Subject: "cluster", State: state, Observation: fmt.Sprintf(format, args...),
			Remedy: mend}}
	}
	const reach = "check the addresses in cluster.nats, and check that at least two of the three NATS servers are " +
		"running with JetStream"
	values, err := open(s)
	if err != nil {
		return found(doctor.Bad, reach, "%v", err), false
	}
	ctx, cancel := context.WithTimeout(ctx, stateStoreTimeout)
	defer cancel()
	for {
		name, lives, err := replica.CurrentLeader(ctx, values, host.RealTimeRuntime{})
		switch {
		case err == nil && lives:
			return found(doctor.Good, "", "the leader is %s", name), true
		case err == nil && name != "":
			return found(doctor.Warn, "check that at least one coordinator is running; a coordinator on standby "+
				"takes over 15 s after the leader has failed",
				"the leader %s has not renewed its lease for 5 s", name), false
		case err == nil:
			return found(doctor.Warn, "start a coordinator", "no leader"), false
		case errors.Is(err, replica.ErrNone):
			return found(doctor.Good, "", "the state store is still empty; the first coordinator that starts "+
				"initialises it"), false
		case ctx.Err() != nil:
			return found(doctor.Bad, reach, "no reply from the state store: %v", err), false
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

const (
	minQueueLength = 500      // minimum number of queued messages, for any number of agents
	maxQueueLength = 50_000   // upper limit of the queue: MQTT message ids end at 65535
	minFreeBytes   = 64 << 20 // in bytes, in addition to the updates of a round
)
