package coordinatord

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorstatus"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// Federation runs one coordinator at a time, replaces it when another task takes effect, and executes commands for the
// run. Each change of the task is an orderly restart, so the process can be killed at any time and the next start
// continues from the state folder.
type Federation struct {
	o             Options
	stateDir      string
	statusTracker *coordinatorstatus.StatusTracker
	enrolment     *enrolmentService
	audit         *auditor

	commandMu           sync.Mutex // serialises commands
	control             coordinator.OperatorDecisions
	applied             coordinatorsettings.AppliedSettings // decoded form of control.Task
	noCoordinatorRunYet bool                                // true until the first coordinator of this process runs

	mu sync.Mutex
	// file is the configuration at the start of the process, with the most recently loaded list of agents. The first
	// run uses its applied part.
	file               *coordinatorsettings.ConfigFile
	currentCoordinator *coordinator.Coordinator // nil while no coordinator is running
	coordinatorChanged chan struct{}            // closed when currentCoordinator changes
}

// newFederation returns a Federation with the operator's decisions from the state folder. s provides the task for the
// first run, and for a new run requested at the start of the process.
func newFederation(s *coordinatorsettings.ConfigFile, o Options) (*Federation, error) {
	f := &Federation{file: s, o: o, stateDir: filepath.Clean(s.StateDir), coordinatorChanged: make(chan struct{}),
		noCoordinatorRunYet: true,
		statusTracker:       coordinatorstatus.New(daemon.Version(), s.Federation, time.Now, o.Board)}
	f.enrolment = &enrolmentService{federation: f}
	control, found, err := coordinator.LoadOperatorDecisions(f.stateDir)
	if err != nil {
		return nil, err
	}
	f.control, f.applied = control, s.AppliedSettings()
	if !found {
		f.control.Task = coordinator.AppliedTask{Version: max(1, control.Task.Version), AppliedAt: time.Now(),
			TaskYAML: f.applied.YAML()}
	} else if f.applied, err = s.ReadApplied(appliedTaskErrorName, control.Task.TaskYAML); err != nil && !o.NewRun {
		return nil, fmt.Errorf("state folder %s: %w; to begin a new run with the task of the configuration file, use "+
			"`coordinator run --new-run`", f.stateDir, err)
	}
	if o.NewRun || o.InitialModel != "" {
		a := s.AppliedSettings()
		f.control.NextTask = &coordinator.AppliedTask{Version: f.control.Task.Version + 1, AppliedAt: time.Now(),
			TaskYAML: a.YAML(),
			NewRun:   o.NewRun, StartModel: o.InitialModel}
	}
	return f, nil
}

// appliedTaskErrorName is used instead of a file name in errors about the applied task.
const appliedTaskErrorName = "the applied task"

// WarnUnappliedSettings logs the settings of a reloaded configuration that are not in effect.
func (f *Federation) WarnUnappliedSettings(file *coordinatorsettings.ConfigFile) {
	f.commandMu.Lock()
	defer f.commandMu.Unlock()
	f.warnTaskDifferences(file)
}

// warnTaskDifferences logs how a configuration differs from the task in effect.
func (f *Federation) warnTaskDifferences(file *coordinatorsettings.ConfigFile) {
	changes, _ := coordinatorsettings.DiffApplied(f.applied, file.AppliedSettings())
	if len(changes) == 0 {
		return
	}
	var all []string
	for _, c := range changes {
		all = append(all, fmt.Sprintf("%s is %s, but %s in the configuration file", c.Key, c.Before, c.After))
	}
	f.o.Logger.Warn("task in the configuration file differs from the applied task, which stays in effect; to apply "+
		"the file: coordinator task apply FILE", "version", f.control.Task.Version, "keys", strings.Join(all, "; "))
}

// runCoordinators runs one coordinator after the other until ctx ends.
func (f *Federation) runCoordinators(ctx context.Context) error {
	for {
		if err := f.runNextCoordinator(ctx); !errors.Is(err, coordinator.ErrStoppedBetweenRounds) || ctx.Err() != nil {
			return err
		}
	}
}

// runNextCoordinator runs the next coordinator until it ends.
func (f *Federation) runNextCoordinator(ctx context.Context) error {
	c, ending, err := f.openNextCoordinator(ctx)
	if err != nil {
		return err
	}
	defer f.setRunningCoordinator(nil)
	if f.noCoordinatorRunYet && f.o.OnReady != nil {
		f.o.OnReady(f)
	}
	f.noCoordinatorRunYet = false
	if ending != nil { // the previous process ended before the next task took effect
		// ignore the error: the coordinator may have ended by itself
		go func() { _ = c.StopBetweenRounds(ctx, ending.AbandonsRound) }()
	}
	return c.Run(ctx)
}

// openNextCoordinator creates the coordinator for the current task. ending is the task that takes effect after the
// current round, or nil.
func (f *Federation) openNextCoordinator(ctx context.Context) (c *coordinator.Coordinator,
	ending *coordinator.AppliedTask,
	err error) {
	f.commandMu.Lock()
	defer f.commandMu.Unlock()
	defer func() {
		if err == nil {
			f.setRunningCoordinator(c) // set it before the lock is released, so that no command intervenes
		}
	}()
	next := f.control.NextTask
	flags := next != nil && f.noCoordinatorRunYet && (f.o.NewRun || f.o.InitialModel != "")
	if next != nil && !flags {
		between, err := coordinator.IsBetweenRounds(f.stateDir)
		if err != nil {
			return nil, nil, err
		}
		if !between {
			next, ending = nil, next
		}
	}
	if next != nil {
		if c, err = f.openCoordinatorForTask(ctx, next, flags); c != nil || err != nil {
			return c, nil, err
		}
	}
	if c, err = f.newCoordinator(ctx, f.applied, f.control.Task, f.control.OperatorCommand); err != nil {
		return nil, nil, err
	}
	if ending != nil {
		f.statusTracker.SetNextTaskVersion(ending.Version)
	}
	if err := f.control.Save(f.stateDir); err != nil {
		return nil, nil, err
	}
	if err := f.publishStateToReplicas(ctx); err != nil {
		return nil, nil, err
	}
	if f.noCoordinatorRunYet {
		f.warnTaskDifferences(f.settings())
	}
	return c, ending, nil
}

// openCoordinatorForTask puts the task next into effect and returns a coordinator for it, or nil if the previous task
// stays in effect. A task that cannot be applied is dropped if it comes from a command, and is an error if it comes
// from start flags.
func (f *Federation) openCoordinatorForTask(ctx context.Context, next *coordinator.AppliedTask,
	flags bool) (*coordinator.Coordinator,
	error) {
	course := f.control.OperatorCommand
	if flags || next.NewRun && course == round.CommandStop {
		course = round.CommandContinue
	}
	applied, err := f.settings().ReadApplied(appliedTaskErrorName, next.TaskYAML)
	var c *coordinator.Coordinator
	if err == nil {
		c, err = f.newCoordinator(ctx, applied, *next, course)
	}
	switch {
	case err == nil:
		f.applied, f.control.OperatorCommand = applied, course
		f.control.ApplyNextTask()
		// the journal already contains the decision
		return c, errors.Join(f.control.Save(f.stateDir), f.publishStateToReplicas(ctx))
	case errors.Is(err, coordinator.ErrRunContinues) && flags: // drop the task, even if ctx has ended
	case flags, ctx.Err() != nil:
		return nil, err
	default:
		f.o.Logger.Error("cannot apply the task; the previous task stays in effect", "version", next.Version,
			"err", err)
	}
	f.control.NextTask = nil
	return nil, nil
}

// newCoordinator creates a coordinator for a task, with its own broker session.
func (f *Federation) newCoordinator(ctx context.Context, a coordinatorsettings.AppliedSettings,
	task coordinator.AppliedTask,
	course round.OperatorCommand) (
	*coordinator.Coordinator, error) {
	s := f.settings().WithApplied(a)
	cfg, err := f.coordinatorConfig(s, task)
	if err != nil {
		return nil, err
	}
	cfg.Round.OperatorCommand = course
	conn, err := daemon.DialBroker(ctx, &s.Broker, cfg.Topics, cfg.Topics.ClientID(wire.CoordinatorID), cfg.Logger,
		f.o.Metrics.CountTraffic, func(m *mqtt.Options) {
			// All uploads of a round arrive in this mailbox, and all replies are sent through this outbox.
			m.MailboxMessages, m.MailboxBytes, m.OutboxMessages = 16384, cfg.MaxBufferedUpdateBytes, 16384
		})
	if err != nil {
		return nil, errors.Join(err, cfg.Agents.Close())
	}
	if f.o.leadership != nil {
		cfg.FolderReplicator, conn = f.o.leadership, f.o.leadership.LeaderOnlyConn(conn)
	}
	c, err := coordinator.New(cfg, conn)
	if err != nil {
		_ = conn.Close() // the first error is the one to report
		return nil, err
	}
	past, err := c.SummarizeRun(status.KeptLosses)
	if err != nil {
		cfg.Logger.Warn("cannot read the history; the status omits earlier rounds", "err", err)
	}
	f.statusTracker.RecordCoordinatorStart(coordinatorstatus.TaskVersionInEffect{Version: task.Version,
		AppliedAt: task.AppliedAt}, &s.Round,
		past)
	return c, nil
}

// coordinatorConfig returns the coordinator's configuration for a task. It opens the list of agents.
func (f *Federation) coordinatorConfig(s *coordinatorsettings.ConfigFile,
	task coordinator.AppliedTask) (coordinator.Config, error) {
	cfg, err := s.CoordinatorConfig()
	if err != nil {
		return cfg, err
	}
	if f.o.NewMeshBuilder != nil {
		if cfg.MakeEdges, err = f.o.NewMeshBuilder(s); err != nil {
			return cfg, err
		}
	}
	if cfg.Agents, err = s.OpenAgentList(); err != nil {
		return cfg, err
	}
	cfg.Logger, cfg.RaiseEpoch, cfg.TaskVersion = f.o.Logger, f.o.TakeOverFederation && f.noCoordinatorRunYet,
		task.Version
	cfg.NewRun, cfg.StartModel = task.NewRun, task.StartModel
	cfg.SelfTestTimeout, cfg.Rand, cfg.FillRandom = daemon.SelfTestTimeout(&s.Broker), daemon.NewRand(),
		daemon.RandomBytes
	cfg.Audit, cfg.RenewCredentials = f.audit.log, f.enrolment.renewCredentials
	cfg.Observer = observe.Observers{f.o.eventDispatcher, f.audit, f.o.Metrics, f.statusTracker, f.o.Observer}
	if f.o.brokerLossMonitor != nil {
		cfg.OnLinkChange = f.o.brokerLossMonitor.handleLinkChange
	}
	return cfg, nil
}

// setRunningCoordinator sets the running coordinator, which may be nil, and notifies the goroutines in
// awaitCoordinator.
func (f *Federation) setRunningCoordinator(c *coordinator.Coordinator) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.currentCoordinator = c
	close(f.coordinatorChanged)
	f.coordinatorChanged = make(chan struct{})
}

// awaitCoordinator waits for a running coordinator and returns it. It returns an error if ctx ends first.
func (f *Federation) awaitCoordinator(ctx context.Context) (*coordinator.Coordinator, error) {
	for {
		f.mu.Lock()
		c, changed := f.currentCoordinator, f.coordinatorChanged
		f.mu.Unlock()
		if c != nil {
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no running coordinator: %w", context.Cause(ctx))
		}
	}
}

// Alive returns an error if the running coordinator does not respond; see coordinator.Coordinator.Alive.
func (f *Federation) Alive(ctx context.Context) error {
	if c := f.runningCoordinator(); c != nil {
		return c.Alive(ctx)
	}
	return nil
}

// ApplyReloadedAgentList loads the list of agents from a reloaded configuration.
func (f *Federation) ApplyReloadedAgentList(ctx context.Context, fresh *coordinatorsettings.ConfigFile) error {
	f.enrolment.agentListMu.Lock()
	defer f.enrolment.agentListMu.Unlock()
	file := *f.settings() // copy: only the path of the list can change without a restart
	file.Identity.AgentListFile = fresh.Identity.AgentListFile
	defer f.enrolment.scheduleACLUpdate(0)
	if err := f.audit.log.RecordEntry(audit.Entry{Event: audit.Reloaded,
		Subject: file.Identity.AgentListFile}); err != nil {
		return err
	}
	return f.reloadAgentList(ctx, &file)
}

// reloadAgentList opens the list of agents and passes it to the coordinator.
func (f *Federation) reloadAgentList(ctx context.Context, file *coordinatorsettings.ConfigFile) error {
	list, err := file.OpenAgentList()
	if err != nil {
		return err
	}
	c, err := f.awaitCoordinator(ctx)
	if err != nil {
		return errors.Join(err, list.Close())
	}
	if err := c.SetAgents(ctx, list); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.file = file
	return nil
}

// settings returns the current configuration, which callers must not modify.
func (f *Federation) settings() *coordinatorsettings.ConfigFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file
}
