package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/daemon"
	"github.com/fedmesh/fedmesh/cmd/internal/service"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/metrics"
)

func runCommand() *cobra.Command {
	var l cli.Loader
	cmd := &cobra.Command{
		Use: "run", Short: "Run the agent", Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return service.Run(cmd.Context(), program, func(ctx context.Context) error { return run(ctx, cmd, &l) })
		},
	}
	l.Flags(cmd, program)
	return cmd
}

func run(ctx context.Context, cmd *cobra.Command, l *cli.Loader) error {
	s, err := load(l)
	if err != nil {
		return err
	}
	var level slog.LevelVar
	log, err := daemon.Logger(cmd.ErrOrStderr(), s.Log, &level)
	if err != nil {
		return err
	}
	defer daemon.Ending(ctx, log)()
	daemon.ResolveNames(s, log)
	supervisor, err := daemon.Supervise(log)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer supervisor.Wait()
	defer stop()
	reg := metrics.NewRegistry(program)
	m := daemon.NewAgentMetrics(reg)
	var ready daemon.Readiness
	server, err := daemon.Serve(ctx, s.Metrics.Listen, metrics.Handler(reg, ready.Err), log)
	if err != nil {
		return err
	}
	reloader := daemon.Reloader[settings.Agent]{
		Log: log, Level: &level, Running: s, Load: func() (*settings.Agent, error) { return load(l) },
		LogOf: func(s *settings.Agent) settings.Log { return s.Log }, Reloaded: m.Reloaded,
	}
	return daemon.RunAgent(ctx, s, daemon.AgentOptions{
		Logger: log, Metrics: m, Gatherer: reg, Observer: daemon.AgentWatch{Line: supervisor.Status, Ready: &ready},
		Ready: func(alive func(context.Context) error) {
			ready.Opened()
			supervisor.Begin(ctx, reloader.Reload, daemon.Worker{Name: "agent", Alive: alive},
				daemon.Worker{Name: "metrics server", Alive: server.Alive})
		},
	})
}
