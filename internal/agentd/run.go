package agentd

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/agent/external"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/agentd/agentconfig"
	"github.com/fedmesh/fedmesh/internal/agentd/agentstatus"
	"github.com/fedmesh/fedmesh/internal/agentd/datacheck"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/doctor"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/metrics/agentmetrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// Options holds the parts of an agent that its process provides instead of its settings, such as the observer and the
// metrics.
type Options struct {
	Logger   *slog.Logger
	Observer observe.Observer // additional observer besides log, metrics and board; may be nil
	Metrics  *Metrics
	// Board holds the conditions of the agent. If it is nil, Run creates a board.
	Board *status.ConditionBoard
	// ReportedMetrics gathers the metrics of this agent for its reports to the coordinator. It is nil if several agents
	// share a process; they send no reports.
	ReportedMetrics prometheus.Gatherer
	// OnReady, if set, is called once, after the state has been opened and before the agent runs. It receives the
	// function alive, which returns an error if the agent's main loop does not respond.
	OnReady func(alive func(ctx context.Context) error)
	// AgentSigningKey, if set, replaces the key from the configured key file.
	AgentSigningKey ed25519.PrivateKey
	// ObserveTraffic, if set, is called for each message, in addition to the metrics.
	ObserveTraffic func(x mqtt.ObservedMessage, kind mqtt.TopicKind)
	// Now, if set, is the clock for certificates and budget months.
	Now func() time.Time
	// WrapConnection decorates each broker connection, and Trainer executes the local steps. Both are set only by
	// simulations.
	WrapConnection func(mqtt.Conn) mqtt.Conn
	Trainer        training.Trainer
}

func (o *Options) countTraffic(x mqtt.ObservedMessage, kind mqtt.TopicKind) {
	o.Metrics.agentMetrics.CountTraffic(x, kind)
	if o.ObserveTraffic != nil {
		o.ObserveTraffic(x, kind)
	}
}

// dialBroker opens a session with a broker. The session's log messages carry name as an attribute.
func (o *Options) dialBroker(ctx context.Context, name string, b *settings.Broker, cfg *agent.Config,
	more func(*mqtt.Options)) (mqtt.Conn, error) {
	log := cfg.Logger.With("connection", name)
	return o.wrapConnection(daemon.DialBroker(ctx, b, cfg.Topics, cfg.Topics.ClientID(cfg.ID), log, o.countTraffic,
		func(m *mqtt.Options) {
			m.CertificateCheckTime = cfg.Identity.Clock.Now
			more(m)
		}))
}

// wrapConnection decorates a connection with WrapConnection, if set.
func (o *Options) wrapConnection(conn mqtt.Conn, err error) (mqtt.Conn, error) {
	if err != nil || o.WrapConnection == nil {
		return conn, err
	}
	return o.WrapConnection(conn), nil
}

// Metrics are the metrics of the agents of one process.
type Metrics struct{ agentMetrics *agentmetrics.AgentMetrics }

// NewMetrics registers the agent metrics with reg. If the device belongs to several federations, each metric has a
// federation label.
func NewMetrics(reg prometheus.Registerer, federation string) *Metrics {
	return &Metrics{agentMetrics: agentmetrics.New(reg, time.Now, federation)}
}

// RecordReload records whether a reload of the configuration succeeded.
func (m *Metrics) RecordReload(good bool) { m.agentMetrics.RecordReload(good) }

// Run runs the agent of a device in one federation until ctx ends.
func Run(ctx context.Context, s *settings.Agent, o Options) error {
	return RunAllFederations(ctx, s, o.Logger, func(*settings.Agent) Options { return o })
}

// sharedDeviceResources holds the resources that the agents of a device share.
type sharedDeviceResources struct {
	isStateInMemory bool // true if the state folder is in memory and therefore lost on a power cut
	trainingLock    training.TrainingLock
	page            devicePage
	meter           mqtt.TrafficMeter
	budget          *budget.UplinkBudget
}

// RunAllFederations runs one agent for each federation of the device until ctx ends or an agent fails. The parameter of
// is a function that returns the options for each federation.
func RunAllFederations(ctx context.Context, s *settings.Agent, log *slog.Logger,
	of func(*settings.Agent) Options) (err error) {
	dir := filepath.Clean(s.StateDir)
	if err := daemon.MakeStateFolder(dir); err != nil {
		return err
	}
	lock, err := store.LockStateFolder(dir)
	if err != nil {
		return err
	}
	defer daemon.UnlockStateFolder(lock, log)
	d := &sharedDeviceResources{isStateInMemory: store.IsRAMBackedFolder(dir)}
	if d.isStateInMemory {
		log.Info("state folder is in memory, so after a power failure the agent must repeat the training of the "+
			"current round",
			"state_dir", dir)
	}
	if limit := uint64(s.Budget.BytesPerMonth); limit > 0 {
		d.budget = &budget.UplinkBudget{MonthlyBytes: limit, Meter: &d.meter, Dir: dir}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := d.page.serve(ctx, s.Console.Listen, log); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, store.BootEpochFile)); err == nil && len(s.Federations) > 0 {
		log.Warn("state folder contains unused files from a configuration with a single federation: to use them, "+
			"stop agentd and move them into the folder of that federation", "state_dir", dir)
	}
	all := s.SettingsPerFederation()
	ended := make(chan error)
	for _, m := range all {
		o := of(m)
		go func() {
			err := d.runAgent(ctx, m, &o)
			if len(all) > 1 && errors.As(err,
				new(*identity.RevokedError)) { // a revoked agent does not stop the agents of other federations
				o.Logger.Error(err.Error())
				<-ctx.Done()
				err = nil
			}
			if err != nil && m.LocalFederationName != "" {
				err = fmt.Errorf("federation %s: %w", m.LocalFederationName, err)
			}
			ended <- err
		}()
	}
	for range all {
		err = errors.Join(err, <-ended)
		cancel()
	}
	return err
}

func (d *sharedDeviceResources) runAgent(ctx context.Context, s *settings.Agent, o *Options) (err error) {
	cfg, err := agentconfig.AgentConfigForFederation(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cfg.TaskData.Source.Close()) }()
	if err := daemon.MakeStateFolder(cfg.StateDir); err != nil {
		return err
	}
	boot, lost, err := store.LocalDisk.NextBootEpoch(cfg.StateDir)
	if err != nil {
		return err
	}
	if o.AgentSigningKey != nil {
		cfg.Identity.Key = o.AgentSigningKey
	}
	cfg.Identity.Clock = identity.NewCertificateClock(doctor.BuildCommitTime(), o.Now)
	cfg.Now, cfg.Presence.MinLostCounterEpoch = cfg.Identity.Clock.Now, wire.Epoch(boot)+1
	if lost != nil {
		cfg.Presence.MinLostCounterEpoch = wire.Epoch(boot)
	}
	cfg.BootEpoch, cfg.Presence.Software, cfg.Training.Trainer = wire.Epoch(boot), "agentd "+daemon.Version(), o.Trainer
	cfg.IsStateDirVolatile, cfg.Budget, cfg.Training.LockShare = d.isStateInMemory, d.budget,
		d.trainingLock.NewShare(cmp.Or(s.LocalFederationName, s.Federation))
	cfg.Logger, cfg.Rand = o.Logger.With("agent", s.ID), daemon.NewRand()
	cfg.Logger.Info("started", "version", daemon.Version(), "federation", cfg.Federation, "start", boot)
	if err := applyDeviceRules(&cfg, s); err != nil {
		return err
	}
	if err := o.startCollectingReadings(ctx, &cfg, s); err != nil {
		return err
	}
	if cfg.Training.Trainer == nil {
		cfg.Training.Trainer = agentconfig.LocalTrainer(s)
	}
	if programs := agentconfig.ExternalTrainersByName(s); len(programs) > 0 {
		t := external.New(ctx, cfg.Training.Trainer, cfg.TaskData.Source, programs, cfg.Federation, cfg.ID, cfg.Logger,
			func(f observe.Event) { cfg.Observer.Observe(f) })
		cfg.Training.Trainer, cfg.TaskData.Source = t, t
	}
	if o.Board == nil {
		o.Board = status.NewBoard(time.Now, nil)
	}
	if cfg.Predict != nil {
		configureModelLockAndHook(&cfg, s)
	}
	health, endForecasts, err := startPublishingForecasts(ctx, &cfg, s, o.Board)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endForecasts(err)) }()
	cfg.SelfTestTimeout = daemon.SelfTestTimeout(&s.Broker)
	if cfg.Mesh != nil {
		cfg.Mesh.FillRandom = daemon.RandomBytes
		if !s.D2D.UsesUplink {
			site := s.D2D.SiteBroker()
			cfg.Mesh.ConnectNeighborBroker = func() (mqtt.Conn, error) {
				return o.dialBroker(ctx, "neighbours", &site, &cfg, func(*mqtt.Options) {})
			}
		}
	}
	configureMetricsReports(&cfg.Presence.MetricsReports, o.ReportedMetrics)
	var present atomic.Pointer[agent.Agent]
	view := agentstatus.New(daemon.Version(), cmp.Or(s.LocalFederationName, s.Federation), s.ID, time.Now, o.Board)
	d.page.add(view)
	api.ServeSocket(ctx, cfg.StateDir, api.Handler(agentRoutes(view, present.Load), api.SocketCaller, nil), cfg.Logger)
	cfg.Observer = observe.Observers{&daemon.EventDispatcher{Log: cfg.Logger, Metrics: o.Metrics.agentMetrics.Events,
		Board: o.Board}, view, health, o.Observer}
	if lost != nil && !errors.Is(lost, store.ErrNoRecord) {
		cfg.Observer.Observe(state.NewStartCounterLost(lost))
	}
	return d.runWithRestarts(ctx, s, cfg, o, &present)
}

// agentRoutes returns the API routes of the agent. The function present returns the running agent, or nil if the agent
// has not started yet.
func agentRoutes(view *agentstatus.StatusTracker, present func() *agent.Agent) []api.Route {
	return []api.Route{view.StatusRoute(), api.GetRoute(datacheck.TaskPath,
		"Return the task against which the agent checks its data.",
		func(r *http.Request) (datacheck.AgentTask, error) {
			a := present()
			if a == nil {
				return datacheck.AgentTask{}, api.Conflict("the agent is still starting: try again")
			}
			ctx, cancel := context.WithTimeout(r.Context(), daemon.CommandTimeout)
			defer cancel()
			task, err := a.EncodedAnnouncedTask(ctx)
			held := datacheck.AgentTask{EncodedTask: task}
			missing, rejected := view.TaskObstacles()
			held.MissingReason, held.OtherFederations = missing.Reason, missing.OtherFederations
			if problem, remedy := rejected.ProblemAndRemedy(); problem != "" {
				held.RejectionAdvice = problem + "; " + remedy
			}
			return held, err
		}), api.PostRoute("/v1/key/rotate", "Replace the device's key.",
		func(r *http.Request, _ api.EmptyBody) (KeyRotationResponse, error) {
			a := present()
			if a == nil {
				return KeyRotationResponse{}, api.Conflict("the agent is still starting: try again")
			}
			ctx, cancel := context.WithTimeout(r.Context(), daemon.CommandTimeout)
			defer cancel()
			return KeyRotationResponse{Rotated: true}, a.RotateKey(ctx)
		})}
}

// KeyRotationResponse is the response to a key rotation request.
type KeyRotationResponse struct {
	Rotated bool `json:"rotated"`
}

// runWithRestarts runs the agent. It starts the agent again with a higher boot epoch (number of starts) if the
// coordinator knows a higher epoch from an earlier start, or if the device key was replaced.
func (d *sharedDeviceResources) runWithRestarts(ctx context.Context, s *settings.Agent, cfg agent.Config, o *Options,
	present *atomic.Pointer[agent.Agent]) error {
	for {
		a, err := agent.New(cfg, func(will func() mqtt.Message) (mqtt.Conn, error) {
			return o.dialBroker(ctx, "coordinator", agentconfig.UplinkBrokerSettings(s), &cfg, func(m *mqtt.Options) {
				m.Will, m.Meter = will, &d.meter
			})
		})
		if err != nil {
			return err
		}
		if present.Swap(a) == nil && o.OnReady != nil {
			o.OnReady(func(ctx context.Context) error { return present.Load().CheckAlive(ctx) })
		}
		err = a.Run(ctx)
		behind, above := (*presence.BootCounterLostError)(nil), cfg.BootEpoch
		rekeyed := errors.As(err, new(*identity.DeviceKeyReplacedError))
		if errors.As(err, &behind) {
			above = behind.Epoch
		} else if !rekeyed {
			return err
		}
		next, err := store.LocalDisk.SaveBootEpochAfter(cfg.StateDir, uint64(above))
		if err != nil {
			return err
		}
		if !rekeyed {
			cfg.Observer.Observe(state.StartCounterRaised{From: cfg.BootEpoch, To: wire.Epoch(next)})
			cfg.Presence.MinLostCounterEpoch = 0
		}
		cfg.BootEpoch = wire.Epoch(next)
	}
}

// configureMetricsReports makes the agent report the metrics gathered by g. If g is nil, metrics reports are disabled.
func configureMetricsReports(r *presence.MetricsReportConfig, g prometheus.Gatherer) {
	if g == nil {
		r.ReportInterval = 0
	}
	r.ReadMetrics = func() []wire.ReportMetric { return metrics.GatherReportMetrics(g) }
}

// startCollectingReadings starts the source if it collects readings itself. The source gets its own session with the
// site's broker.
func (o *Options) startCollectingReadings(ctx context.Context, cfg *agent.Config, s *settings.Agent) error {
	c, collects := cfg.TaskData.Source.(data.ReadingCollector)
	if !collects {
		return nil
	}
	return c.Start(data.CollectorEnv{
		RingFolder: filepath.Join(cfg.StateDir, "readings"), Disk: store.LocalDisk, RingLimits: s.Readings.RingBounds(),
		Now:    time.Now,
		Logger: cfg.Logger,
		ConnectBroker: func(observe func(mqtt.ObservedMessage)) (mqtt.Conn, error) {
			site := s.Readings.SiteBroker()
			return o.wrapConnection(daemon.DialBroker(ctx, &site, cfg.Topics, cfg.Topics.ClientID(cfg.ID)+"-data",
				cfg.Logger.With("connection", "readings"),
				func(x mqtt.ObservedMessage, _ mqtt.TopicKind) { observe(x) },
				func(m *mqtt.Options) { m.CertificateCheckTime = cfg.Identity.Clock.Now }))
		},
	})
}

// applyDeviceRules makes the agent follow the device rules, if set.
func applyDeviceRules(cfg *agent.Config, s *settings.Agent) error {
	rules, err := agentconfig.DeviceRules(&s.Device)
	if err != nil || !rules.HasRules() {
		return err
	}
	system := device.SystemReader{Root: s.Device.ProcSysRoot}
	for _, rule := range rules.RulesWithoutSensor(system.Read()) {
		cfg.Logger.Warn("device rule has no effect because the system does not report the value that it requires",
			"rule", rule)
	}
	cfg.JudgeDevice = func(before device.RuleVerdict) device.RuleVerdict {
		return rules.JudgeReading(time.Now(), system.Read(),
			before)
	}
	return nil
}
