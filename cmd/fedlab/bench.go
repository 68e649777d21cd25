package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/fedlab/internal/bench"
	"github.com/fedmesh/fedmesh/cmd/internal/cli"
)

func benchCommand() *cobra.Command {
	o := bench.Defaults()
	cmd := &cobra.Command{
		Use: "bench", Short: "Race rounds against bare paho and raw TCP", Args: cli.Args(cobra.NoArgs),
		Long: `Measure what a round costs: a model out to N agents and N updates back,
against bare paho with the same bytes over the same broker, and against a relay
of raw TCP frames. It takes minutes. docs/BENCHMARKS.md has its tables and says
how to read them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return cli.Usage("%w", err)
			}
			return bench.Run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Brokers, "brokers", o.Brokers, "which brokers")
	f.IntSliceVar(&o.Agents, "agents", o.Agents, "how many agents")
	f.IntSliceVar(&o.Dims, "dims", o.Dims, "lengths of the model, in float32 elements")
	f.StringSliceVar(&o.Only, "only", nil, "only these contestants, by their names in the table")
	f.IntVar(&o.Reps, "reps", o.Reps, "repetitions; the best one counts")
	f.StringVar(&o.Dir, "dir", o.Dir, "where the coordinator keeps its state, on the disk whose fsync is measured")
	f.StringVar(&o.Memory, "tmpfs", o.Memory, "where agents keep theirs, and the quick coordinator: a folder in memory")
	f.StringVar(&o.Profile, "cpuprofile", "", "write a CPU profile of the rounds to this file")
	return cmd
}
