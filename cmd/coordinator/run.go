package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/duplicate"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/service"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/metrics/coordinatormetrics"
)

func runCommand() *cobra.Command {
	var l cli.ConfigLoader
	var begin runStartFlags
	cmd := &cobra.Command{
		Use: "run", Short: "Run the coordinator", Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return service.Run(cmd.Context(), program,
				func(ctx context.Context) error { return runCoordinator(ctx, cmd, &l, begin) })
		},
	}
	l.AddFlags(cmd, program)
	cmd.Flags().BoolVar(&begin.newRun, "new-run", false,
		"begin a new run even if the state folder contains an unfinished run, or the broker retains the announcement "+
			"of a later run")
	cmd.Flags().StringVar(&begin.initialModel, "from", "",
		"begin a new run from a model: VERSION of the newest run, RUN/VERSION, or a safetensors file; if the current "+
			"run began from this model, that run continues")
	cmd.Flags().BoolVar(&begin.takeOver, "take-over", false,
		"increase the epoch, so that agents follow this coordinator instead of another one; use this flag for one "+
			"start only, after stopping the other coordinator")
	return cmd
}

// runStartFlags contains the flags that determine how a run starts.
type runStartFlags struct {
	newRun, takeOver bool
	initialModel     string
}

func runCoordinator(ctx context.Context, cmd *cobra.Command, l *cli.ConfigLoader, begin runStartFlags) error {
	s, err := loadConfigFile(l)
	if err != nil {
		return err
	}
	var level slog.LevelVar
	var recent logging.RecentRecords
	log, err := daemon.NewLogger(cmd.ErrOrStderr(), s.Log, &level, &recent)
	if err != nil {
		return err
	}
	defer daemon.LogShutdown(ctx, log)()
	supervisor, err := daemon.NewSystemdSupervisor(log)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer supervisor.Wait()
	defer stop()
	reg := metrics.NewRegistry(program)
	m := coordinatormetrics.New(reg, time.Now)
	board := supervisor.Status.NewBoard("")
	server, err := daemon.ServeMetrics(ctx, s.Metrics.Listen, m.Handler(reg, supervisor.Status.ReadinessErr), log)
	if err != nil {
		return err
	}
	reloader := daemon.ConfigReloader[coordinatorsettings.ConfigFile]{
		Log: log, LogLevel: &level, StartupConfig: s, LoadConfig: func() (*coordinatorsettings.ConfigFile,
			error) {
			return loadConfigFile(l)
		},
		LogSettingsOf:      func(s *coordinatorsettings.ConfigFile) settings.Log { return s.Log },
		OnReloaded:         m.RecordReload,
		IsAppliedByCommand: coordinatorsettings.IsAppliedKey,
	}
	o := coordinatord.Options{Logger: log, Metrics: m, NewRun: begin.newRun, TakeOverFederation: begin.takeOver,
		InitialModel: begin.initialModel, NewMeshBuilder: newMeshBuilder, RenderMosquittoACL: mosquittoACL,
		OpenReplicaStore: natsStoreOpener(log), Board: board, RecentRecords: &recent}
	// leading is the federation that this process leads; nil while the process is a standby.
	var leading atomic.Pointer[coordinatord.Federation]
	reloader.ApplySettings = func(ctx context.Context, fresh *coordinatorsettings.ConfigFile) error {
		f := leading.Load()
		if f == nil {
			return nil
		}
		err := f.ApplyReloadedAgentList(ctx, fresh)
		if err == nil {
			f.WarnUnappliedSettings(fresh)
		}
		return err
	}
	alive := func(ctx context.Context) error {
		if f := leading.Load(); f != nil {
			return f.Alive(ctx)
		}
		return nil
	}
	supervise := sync.OnceFunc(func() {
		supervisor.ReportReadyAndSupervise(ctx, reloader.Reload, daemon.Worker{Name: "coordinator", CheckAlive: alive},
			daemon.Worker{Name: "metrics server", CheckAlive: server.Alive})
	})
	o.Standby = &coordinatord.StandbyCoordinator{OnStandby: func() {
		board.ResolveCondition(status.StartingCondition.Name)
		supervise()
	}}
	o.OnReady = func(f *coordinatord.Federation) {
		board.ResolveCondition(status.StartingCondition.Name)
		leading.Store(f)
		supervise()
	}
	return asConfigError(l.Path, s.Cluster.IsEnabled(), coordinatord.Run(ctx, s, o))
}

// asConfigError converts an error that a restart cannot solve to a configuration error. The exit status of a
// configuration error prevents a service manager from restarting the program. If several coordinators share the state,
// a duplicate.OutdatedError is not converted, so that the outdated coordinator is restarted and becomes a standby.
func asConfigError(path string, several bool, err error) error {
	var other *aggregation.TaskMismatchError
	var state *runs.StateError
	var behind *duplicate.OutdatedError
	switch {
	case several && errors.As(err, &behind):
	case errors.As(err, &other):
		return &config.Error{Origin: path, Problem: other.Error(), Err: err}
	case errors.As(err, &state):
		return &config.Error{Origin: state.Path, Problem: state.Problem, Hint: state.Remedy, Err: err}
	}
	return err
}
