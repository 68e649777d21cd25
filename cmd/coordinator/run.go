package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/config"
	"github.com/fedmesh/fedmesh/cmd/internal/daemon"
	"github.com/fedmesh/fedmesh/cmd/internal/keys"
	"github.com/fedmesh/fedmesh/cmd/internal/service"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/metrics"
)

func runCommand() *cobra.Command {
	var l cli.Loader
	var newRun bool
	cmd := &cobra.Command{
		Use: "run", Short: "Run the coordinator", Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return service.Run(cmd.Context(), program, func(ctx context.Context) error { return run(ctx, cmd, &l, newRun) })
		},
	}
	l.Flags(cmd, program)
	cmd.Flags().BoolVar(&newRun, "new-run", false, "begin a new run even if the state folder holds an unfinished one")
	return cmd
}

func run(ctx context.Context, cmd *cobra.Command, l *cli.Loader, newRun bool) error {
	s, err := load(l)
	if err != nil {
		return err
	}
	var level slog.LevelVar
	log, err := daemon.Logger(cmd.ErrOrStderr(), s.Log, &level)
	if err != nil {
		return err
	}
	supervisor, err := daemon.Supervise(log)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer supervisor.Wait()
	defer stop()
	reg := metrics.NewRegistry(program)
	m := metrics.NewCoordinator(reg, time.Now)
	var ready daemon.Readiness
	server, err := daemon.Serve(ctx, s.Metrics.Listen, m.Handler(reg, ready.Err), log)
	if err != nil {
		return err
	}
	reloader := daemon.Reloader[settings.Coordinator]{
		Log: log, Level: &level, Running: s, Load: func() (*settings.Coordinator, error) { return load(l) },
		LogOf: func(s *settings.Coordinator) settings.Log { return s.Log }, Reloaded: m.Reloaded,
	}
	o := daemon.CoordinatorOptions{Logger: log, Metrics: m, NewRun: newRun, Observer: daemon.Observers{supervisor.Status, &ready}}
	if mesh, err := meshOf(s); err != nil {
		return err
	} else if mesh != nil {
		o.Edges = mesh.Make
	}
	o.Ready = func(c *coordinator.Coordinator) {
		ready.Opened()
		reloader.Apply = func(ctx context.Context, fresh *settings.Coordinator) error {
			agents, err := keys.Agents(fresh.Identity.AgentsFile)
			if err != nil {
				return err
			}
			return c.SetAgents(ctx, agents)
		}
		supervisor.Begin(ctx, reloader.Reload, daemon.Worker{Name: "coordinator", Alive: c.Alive}, daemon.Worker{Name: "metrics server", Alive: server.Alive})
	}
	err = daemon.RunCoordinator(ctx, s, o)
	if errors.Is(err, coordinator.ErrOtherTask) {
		return &config.Error{Origin: l.Path, Problem: coordinator.ErrOtherTask.Error(), Err: err}
	}
	return err
}
