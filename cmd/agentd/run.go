package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/internal/agentd"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/service"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/metrics"
)

func runCommand() *cobra.Command {
	var l cli.ConfigLoader
	cmd := &cobra.Command{
		Use: "run", Short: "Run the agent", Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return service.Run(cmd.Context(), program, func(ctx context.Context) error {
				return runAgent(ctx, cmd,
					&l)
			})
		},
	}
	l.AddFlags(cmd, program)
	return cmd
}

func runAgent(ctx context.Context, cmd *cobra.Command, l *cli.ConfigLoader) error {
	s, err := loadSettings(l)
	if err != nil {
		return err
	}
	var level slog.LevelVar
	log, err := daemon.NewLogger(cmd.ErrOrStderr(), s.Log, &level, nil)
	if err != nil {
		return err
	}
	defer daemon.LogShutdown(ctx, log)()
	agentd.UseConfiguredDNS(s, log)
	supervisor, err := daemon.NewSystemdSupervisor(log)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer supervisor.Wait()
	defer stop()
	reg := metrics.NewRegistry(program)
	all := s.SettingsPerFederation()
	boards, observed := make([]*status.ConditionBoard, len(all)), make([]*agentd.Metrics, len(all))
	for i, m := range all {
		boards[i] = supervisor.Status.NewBoard(m.LocalFederationName)
	}
	server, err := daemon.ServeMetrics(ctx, s.Metrics.Listen, metrics.Handler(reg, supervisor.Status.ReadinessErr), log)
	if err != nil {
		return err
	}
	reloader := daemon.ConfigReloader[settings.Agent]{
		Log: log, LogLevel: &level, StartupConfig: s, LoadConfig: func() (*settings.Agent,
			error) {
			return loadSettings(l)
		},
		LogSettingsOf: func(s *settings.Agent) settings.Log { return s.Log },
		OnReloaded: func(good bool) {
			for _, m := range observed {
				m.RecordReload(good)
			}
		},
	}
	var mu sync.Mutex // protects workers, because the agents start concurrently
	workers := []daemon.Worker{{Name: "metrics server", CheckAlive: server.Alive}}
	next := 0
	return deviceRevokedAsConfigError(l.Path, agentd.RunAllFederations(ctx, s, log,
		func(m *settings.Agent) agentd.Options {
			i := next
			next++
			own := metrics.NewRegistry(program)
			observed[i] = agentd.NewMetrics(metrics.DualRegisterer{Registerer: own, SecondRegisterer: reg},
				m.LocalFederationName)
			o := agentd.Options{Logger: log, Metrics: observed[i], ReportedMetrics: own, Board: boards[i]}
			name := "agent"
			if m.LocalFederationName != "" {
				o.Logger, name = log.With("federation", m.LocalFederationName), "agent of "+m.LocalFederationName
			}
			o.OnReady = func(alive func(context.Context) error) {
				boards[i].ResolveCondition(status.StartingCondition.Name)
				mu.Lock()
				defer mu.Unlock()
				if workers = append(workers, daemon.Worker{Name: name, CheckAlive: alive}); len(workers) > len(all) {
					supervisor.ReportReadyAndSupervise(ctx, reloader.Reload, workers...)
				}
			}
			return o
		}))
}

// deviceRevokedAsConfigError converts an identity.RevokedError to a configuration error, so that the service manager
// does not restart the agent.
func deviceRevokedAsConfigError(path string, err error) error {
	var is *identity.RevokedError
	if !errors.As(err, &is) {
		return err
	}
	return &config.Error{Origin: path, Problem: is.Error(), Err: err,
		Hint: "contact the operator of the federation; to join another federation, run `agentd join`"}
}
