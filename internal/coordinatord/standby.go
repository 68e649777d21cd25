package coordinatord

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
)

// replicatedAgentListName is the name of the list of agents among the replicated files. Each replica may store it at
// another path.
const replicatedAgentListName = "agents"

var (
	errStopped           = errors.New("the process is stopping")
	errBrokerUnreachable = fmt.Errorf("no connection to the broker for %s; giving up the leadership because another "+
		"coordinator may be connected",
		brokerLossTimeout)
)

// brokerLossTimeout is how long a leader can be disconnected from the broker before it steps down.
const brokerLossTimeout = 30 * time.Second

// stepDownWithin is the time limit for stepping down as leader when the process ends.
const stepDownWithin = 5 * time.Second

// awaitLeadership waits until this replica becomes the leader. When it returns, the state folder contains the
// federation's replicated state.
func awaitLeadership(ctx context.Context, s *coordinatorsettings.ConfigFile, o *Options) (*replica.Leadership, error) {
	name, err := s.Cluster.ReplicaName()
	if err != nil {
		return nil, err
	}
	if err := checkAgentListWritable(s.Identity.AgentListFile); err != nil {
		return nil, err
	}
	values, err := o.OpenReplicaStore(s)
	if err != nil {
		return nil, err
	}
	observers := observe.Observers{o.eventDispatcher, o.Standby, standbyConsole{o.console, s.Console.URLByReplica}}
	observers.Observe(replica.StandingBy{}) // published until the replica knows the leader
	r := replica.New(replica.Config{Store: values, Name: name, Instance: daemon.NewRand().Uint64(),
		Runtime:  host.RealTimeRuntime{},
		Observer: observers,
		Folder: replica.ReplicatedFolder{Disk: store.LocalDisk, Dir: s.StateDir, IsReplicated: isReplicatedFile,
			ExternalPathByName: map[string]string{replicatedAgentListName: s.Identity.AgentListFile}}})
	answering, end := context.WithCancel(ctx)
	defer end()
	o.Standby.serveStandbyMessage(answering, s.StateDir, o.Logger)
	o.Standby.enterStandby()
	return r.AwaitLeadership(ctx)
}

// checkAgentListWritable returns an error if the list of agents could not be written after a takeover.
func checkAgentListWritable(list string) error {
	probe, err := os.CreateTemp(filepath.Dir(list), ".fedmesh-probe-")
	if err == nil {
		err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	if err != nil {
		return &config.Error{Origin: "identity.agents_file", Problem: "cannot be written: " + err.Error(), Err: err,
			Hint: "the coordinators of a cluster share one list of agents: store the list in a folder to which each " +
				"of them can write, such as state_dir"}
	}
	return nil
}

// isReplicatedFile reports whether a file of the state folder is replicated.
func isReplicatedFile(name string) bool {
	return name == runs.Tokens.Name || name == runs.DeviceHistory.Name || runs.BelongsToBackup(name)
}

// StandbyCoordinator answers API requests of a replica while another replica is the leader.
type StandbyCoordinator struct {
	// OnStandby, if set, is called once, when the coordinator begins to stand by.
	OnStandby func()

	leaderName atomic.Pointer[string] // name of the leader; nil if unknown or this replica leads
}

func (w *StandbyCoordinator) enterStandby() {
	if w.OnStandby != nil {
		w.OnStandby()
	}
}

// serveStandbyMessage answers commands with the leader's name until ctx ends.
func (w *StandbyCoordinator) serveStandbyMessage(ctx context.Context, dir string, log *slog.Logger) {
	routes := []api.Route{api.GetRoute("/v1/status", "Return the leader.", func(*http.Request) (struct{}, error) {
		return struct{}{}, &api.Error{Status: http.StatusServiceUnavailable, Problem: w.standbyMessage()}
	})}
	api.ServeSocket(ctx, dir, api.Handler(routes, api.SocketCaller, nil), log)
}

func (w *StandbyCoordinator) standbyMessage() string {
	if l := w.leaderName.Load(); l != nil && *l != "" {
		return fmt.Sprintf("this coordinator is on standby; run the command on the leader %s", *l)
	}
	return "this coordinator is on standby and the leader is unknown: the state store does not reply, or an election " +
		"is in progress"
}

// Observe implements observe.Observer. It records the leader for the replies to commands.
func (w *StandbyCoordinator) Observe(e observe.Event) {
	switch e := e.(type) {
	case replica.StandingBy:
		w.leaderName.Store(&e.Leader)
	case replica.LeadershipGained:
		w.leaderName.Store(nil)
	}
}

// publishStateToReplicas publishes the state folder to the other coordinators of the cluster, so that the next leader
// continues from it.
func (f *Federation) publishStateToReplicas(ctx context.Context) error {
	if f.o.leadership == nil {
		return nil
	}
	err := f.o.leadership.CommitFolderWrite(ctx, 0, func() error { return nil })
	if err != nil {
		return fmt.Errorf("the change is saved on this coordinator, but the coordinators on standby may not have "+
			"received the change: %w", err)
	}
	return nil
}

// brokerLossMonitor makes the leader step down if it cannot reach the broker, because another replica may still reach
// the broker.
type brokerLossMonitor struct {
	stepDownTimer *time.Timer
	isLinkUp      bool
}

func newBrokerLossMonitor(lead *replica.Leadership, log *slog.Logger) *brokerLossMonitor {
	return &brokerLossMonitor{stepDownTimer: time.AfterFunc(brokerLossTimeout, func() {
		for lead.Context().Err() == nil {
			ctx, cancel := context.WithTimeout(lead.Context(), stepDownWithin)
			err := lead.StepDown(ctx, errBrokerUnreachable)
			cancel()
			if err == nil {
				return
			}
			log.Warn("broker is unreachable, but the leadership cannot be handed over; retrying", "err", err)
			select {
			case <-lead.Context().Done():
			case <-time.After(time.Second):
			}
		}
	})}
}

// handleLinkChange implements coordinator.Config.OnLinkChange. up reports whether the broker is connected.
func (w *brokerLossMonitor) handleLinkChange(up bool) {
	switch {
	case up:
		w.isLinkUp = true
		w.stepDownTimer.Stop()
	case w.isLinkUp: // each failed connection attempt is also reported
		w.isLinkUp = false
		w.stepDownTimer.Reset(brokerLossTimeout)
	}
}

// stepDownAsLeader gives up leadership when the process ends. If ctx has not ended, leadership was already lost, and it
// returns the reason.
func stepDownAsLeader(ctx context.Context, lead *replica.Leadership, log *slog.Logger) error {
	if ctx.Err() == nil {
		return context.Cause(lead.Context())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepDownWithin)
	defer cancel()
	if err := lead.StepDown(ctx, errStopped); err != nil {
		log.Warn("cannot hand over the leadership; another coordinator takes over when the lease expires", "err", err)
	}
	return nil
}
