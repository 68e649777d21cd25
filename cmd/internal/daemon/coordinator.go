package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/cmd/internal/status"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// CoordinatorOptions are the parts of a coordinator that come from its process, not from its settings.
type CoordinatorOptions struct {
	Logger   *slog.Logger
	Observer coordinator.Observer // beside the log
	Metrics  *metrics.Coordinator
	NewRun   bool
	From     string // the model with which a new run begins; see coordinator.Config
	TakeOver bool
	// Ready, if set, is called when the state is open and the coordinator is about to run.
	Ready func(*coordinator.Coordinator)
	// Edges makes the edges between agents that mix; nil if the algorithm does not mix.
	Edges func(agents []round.MeshAgent) (coordinator.Mesh, error)
}

// RunCoordinator runs a coordinator until ctx ends.
func RunCoordinator(ctx context.Context, s *settings.Coordinator, o CoordinatorOptions) error {
	cfg, err := s.Config()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	lock, err := store.Lock(cfg.Dir)
	if err != nil {
		return err
	}
	defer unlock(lock, o.Logger)
	if cfg.Agents, err = s.OpenAgents(); err != nil {
		return err
	}
	defer cfg.Agents.Close()
	cfg.Logger, cfg.NewRun, cfg.TakeOver, cfg.From, cfg.Edges = o.Logger, o.NewRun, o.TakeOver, o.From, o.Edges
	cfg.SelfTest, cfg.Rand = selfTestTime(&s.Broker), newRand()
	cfg.Logger.Info("started", "version", Version(), "federation", cfg.Federation, "agents", cfg.Agents.Len())
	view := status.NewCoordinator(Version(), s.Federation, &s.Round, time.Now)
	status.Serve(ctx, cfg.Dir, view.Picture, cfg.Logger)
	cfg.Observer = observers[coordinator.Fact, round.CoordinatorFact]{coordinatorLog{o.Logger}, o.Metrics, view,
		o.Observer}
	conn, err := dial(ctx, &s.Broker, cfg.Topics, cfg.Topics.ClientID(wire.CoordinatorID), cfg.Logger,
		o.Metrics.Traffic, func(m *mqtt.Options) {
			// All uploads of a round arrive in this mailbox, and all answers leave through this outbox.
			m.MailboxMessages, m.MailboxBytes, m.OutboxMessages = 16384, cfg.MaxBuffered, 16384
		})
	if err != nil {
		return err
	}
	c, err := coordinator.New(cfg, conn)
	if err != nil {
		_ = conn.Close() // the first error is the one to show
		return err
	}
	past, err := c.Past(status.KeptLosses)
	if err != nil {
		cfg.Logger.Warn("cannot read the history: the status command does not show all earlier rounds", "err", err)
	}
	view.Recall(past)
	if o.Ready != nil {
		o.Ready(c)
	}
	return c.Run(ctx)
}
