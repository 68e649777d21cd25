package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/lab/simulate"
)

func simulateCommand() *cobra.Command {
	var o simulate.Options
	var set cli.Overrides
	cmd := &cobra.Command{
		Use: "simulate", Short: "Simulate an experiment with many agents, and plot the results",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Run the daemons' algorithms with any number of agents in this process, and write
result.json, curves.csv and plots. The same seed gives a bit-identical result with any
number of cores. docs/SIMULATION.md contains example experiments and describes every
key.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (o.Config == "") == (o.Load == "") {
				return cli.UsageErrorf("specify either --config or --load")
			}
			if o.Load != "" && o.Dump != "" {
				return cli.UsageErrorf("--load and --dump cannot be combined: --dump would write the files that " +
					"--load reads")
			}
			if o.Out == "" {
				return cli.UsageErrorf("--out is required: specify a folder for the results")
			}
			o.Set, o.Stdout, o.Stderr = set, cmd.OutOrStdout(), cmd.ErrOrStderr()
			return simulate.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.Config, "config", "c", "", "configuration file of the experiment")
	f.Var(&set, "set", "set a configuration key, such as participants=10; may be repeated")
	f.StringVar(&o.Out, "out", "", "folder for result.json, curves.csv and the plots")
	f.StringVar(&o.Dump, "dump", "",
		"folder for the generated data and all random numbers, so that other programs can recompute the runs")
	f.StringVar(&o.Load, "load", "", "folder with generated data and random numbers, written by --dump, from which "+
		"to repeat the runs")
	return cmd
}
