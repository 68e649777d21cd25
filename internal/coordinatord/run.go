package coordinatord

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/console"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/metrics/coordinatormetrics"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
)

// Options holds the parts of a coordinator that its process provides instead of its settings, such as the observer and
// the condition board.
type Options struct {
	Logger             *slog.Logger
	Observer           observe.Observer // additional observer besides log, metrics and board; may be nil
	Metrics            *coordinatormetrics.CoordinatorMetrics
	RecentRecords      *logging.RecentRecords // newest log records, which the console shows; may be nil
	Board              *status.ConditionBoard // holds the coordinator's conditions; if nil, Run creates one
	NewRun             bool
	InitialModel       string // initial model of a new run; see coordinator.Config
	TakeOverFederation bool
	// OnReady, if set, is called after the state has been opened and before the coordinator runs.
	OnReady func(*Federation)
	// NewMeshBuilder returns a function that builds the graph of mixing agents, or nil if the algorithm does not mix.
	// The field is nil in programs that never mix.
	NewMeshBuilder func(s *coordinatorsettings.ConfigFile) (func(agents []round.MixingAgent) (meshplan.MixingGraph,
		error),
		error)
	// OpenReplicaStore opens the state store that several coordinators share. It is a field so that agentd does not
	// link the client of the store.
	OpenReplicaStore func(s *coordinatorsettings.ConfigFile) (replica.KeyValueStore, error)
	// Standby handles API requests while another replica leads.
	Standby *StandbyCoordinator
	// RenderMosquittoACL returns Mosquitto's access rules for the list of agents. It is a field so that agentd does not
	// link package mosquitto.
	RenderMosquittoACL func(s *coordinatorsettings.ConfigFile) ([]byte, error)

	eventDispatcher   *daemon.EventDispatcher // handles events of coordinator, enrolment and replica
	leadership        *replica.Leadership     // nil without replicas
	brokerLossMonitor *brokerLossMonitor      // nil without replicas
	console           *console.Server         // nil if the console is disabled
}

// Run runs a federation's coordinator until ctx ends.
func Run(ctx context.Context, s *coordinatorsettings.ConfigFile, o Options) error {
	if err := daemon.MakeStateFolder(s.StateDir); err != nil {
		return err
	}
	lock, err := store.LockStateFolder(s.StateDir)
	if err != nil {
		return err
	}
	defer daemon.UnlockStateFolder(lock, o.Logger)
	if o.Board == nil {
		o.Board = status.NewBoard(time.Now, nil)
	}
	o.eventDispatcher = &daemon.EventDispatcher{Log: o.Logger, Metrics: o.Metrics.Events, Board: o.Board}
	if o.console, err = startConsole(ctx, s, &o); err != nil {
		return err
	}
	if !s.Cluster.IsEnabled() {
		return runFederation(ctx, s, o)
	}
	if o.leadership, err = awaitLeadership(ctx, s, &o); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	o.Board.RaiseCondition(status.StartingCondition)
	o.brokerLossMonitor = newBrokerLossMonitor(o.leadership, o.Logger)
	defer o.brokerLossMonitor.stepDownTimer.Stop()
	err = runFederation(o.leadership.Context(), s, o)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) { // a requested shutdown is not an error
		err = nil
	}
	return errors.Join(err, stepDownAsLeader(ctx, o.leadership, o.Logger))
}

// runFederation runs the coordinators of a federation.
func runFederation(ctx context.Context, s *coordinatorsettings.ConfigFile, o Options) error {
	f, err := newFederation(s, o)
	if err != nil {
		return err
	}
	if f.audit, err = openAudit(s, o.Logger); err != nil {
		return err
	}
	defer f.audit.close()
	agents, err := s.CountAgents()
	if err != nil {
		return err
	}
	o.Logger.Info("started", "version", daemon.Version(), "federation", s.Federation, "agents", agents)
	if err := f.enrolment.startRegistrar(ctx); err != nil {
		return err
	}
	defer f.persistDeviceHistory(ctx)()
	if s.History.MLflow.URL != "" {
		t, err := s.MLflowTracking(daemon.Version())
		if err != nil {
			return err
		}
		defer f.logToMLflow(ctx, t)()
	}
	routes := api.WithOpenAPIRoute("fedmesh coordinator", "1", f.Routes())
	api.ServeSocket(ctx, f.stateDir, api.Handler(routes, api.SocketCaller, f.audit), o.Logger)
	if o.console != nil {
		o.console.SetContent(f.consoleContent(routes))
	}
	return f.runCoordinators(ctx)
}
