package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/daemon"
	"github.com/fedmesh/fedmesh/coordinator/edges"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/round"
)

func runCommand() *cobra.Command {
	var l cli.Loader
	var newRun bool
	cmd := &cobra.Command{
		Use: "run", Short: "Run the coordinator", Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := load(&l)
			if err != nil {
				return err
			}
			log, err := daemon.Logger(cmd.ErrOrStderr(), s.Log)
			if err != nil {
				return err
			}
			reg := metrics.NewRegistry(program)
			m := metrics.NewCoordinator(reg, time.Now)
			if _, err := daemon.Serve(cmd.Context(), s.Metrics.Listen, m.Handler(reg, daemon.Ready), log); err != nil {
				return err
			}
			o := daemon.CoordinatorOptions{Logger: log, Metrics: m, NewRun: newRun}
			if s.Round.Algorithm == round.FedDec {
				maker, err := edges.New(edges.Shape(s.Mesh.Edges), s.Mesh.Radius, s.Mesh.File, s.Mesh.Weights)
				if err != nil {
					return fmt.Errorf("mesh: %w", err)
				}
				o.Edges = maker.Make
			}
			return daemon.RunCoordinator(cmd.Context(), s, o)
		},
	}
	l.Flags(cmd, program)
	cmd.Flags().BoolVar(&newRun, "new-run", false, "begin a new run even if the state folder holds an unfinished one")
	return cmd
}
