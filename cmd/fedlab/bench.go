package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/lab/bench"
)

func benchCommand() *cobra.Command {
	o := bench.Defaults()
	cmd := &cobra.Command{
		Use: "bench", Short: "Compare the speed of rounds with the plain MQTT library paho and with raw TCP",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Measure the time of a round, with a model to N agents and N updates back. Compare
it with plain paho, which sends the same bytes over the same broker, and with a
relay of raw TCP frames. The command takes minutes. docs/BENCHMARKS.md contains the
tables and explains them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return cli.UsageErrorf("%w", err)
			}
			return bench.Run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Brokers, "brokers", o.Brokers, "MQTT brokers on which to measure")
	f.IntSliceVar(&o.Agents, "agents", o.Agents, "numbers of agents")
	f.IntSliceVar(&o.Dims, "dims", o.Dims, "model lengths, in float32 elements")
	f.StringSliceVar(&o.Only, "only", nil, "measure only the rows with these names in the table")
	f.IntVar(&o.Reps, "reps", o.Reps, "number of repetitions; the fastest one is reported")
	f.StringVar(&o.Dir, "dir", o.Dir, "folder for the coordinator's state, on the disk whose fsync time is measured")
	f.StringVar(&o.Memory, "tmpfs", o.Memory,
		"folder in memory (tmpfs), for the state of the agents and of the coordinator without fsync")
	f.StringVar(&o.Profile, "cpuprofile", "", "write a CPU profile of the rounds to this file")
	return cmd
}
