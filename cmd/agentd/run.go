package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/daemon"
	"github.com/fedmesh/fedmesh/metrics"
)

func runCommand() *cobra.Command {
	var l cli.Loader
	cmd := &cobra.Command{
		Use: "run", Short: "Run the agent", Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := load(&l)
			if err != nil {
				return err
			}
			log, err := daemon.Logger(cmd.ErrOrStderr(), s.Log)
			if err != nil {
				return err
			}
			daemon.ResolveNames(s, log)
			reg := metrics.NewRegistry(program)
			m := daemon.NewAgentMetrics(reg)
			if _, err := daemon.Serve(cmd.Context(), s.Metrics.Listen, metrics.Handler(reg, daemon.Ready), log); err != nil {
				return err
			}
			return daemon.RunAgent(cmd.Context(), s, daemon.AgentOptions{Logger: log, Metrics: m, Gatherer: reg})
		},
	}
	l.Flags(cmd, program)
	return cmd
}
