package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/lab/bench"
)

func benchFlowerCommand() *cobra.Command {
	o := bench.FlowerDefaults()
	cmd := &cobra.Command{
		Use: "bench-flower", Short: "Compare the speed of fedmesh with the framework Flower",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Compare a coordinator and agents on Mosquitto with Flower's server and clients over
gRPC. Each is a process. Both federations have the same model, steps and risks, and
run in turn. The command installs Flower from PyPI into its own folder, and takes half
an hour. docs/BENCHMARKS.md contains the tables and explains them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.RunFlower(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Cells, "cells", o.Cells, "numbers of agents and model lengths, as AGENTSxELEMENTS")
	f.IntVar(&o.Reps, "reps", o.Reps, "number of alternating runs of each framework; the median is reported")
	f.IntVar(&o.Rounds, "rounds", 0, "measured rounds per run, at least 10; 0 = depends on the model length")
	f.StringVar(&o.Dir, "dir", o.Dir, "folder on the disk whose fsync time is measured; empty = the folder for "+
		"temporary files")
	f.StringVar(&o.Memory, "tmpfs", o.Memory, "folder in memory (tmpfs) for temporary state")
	f.StringVar(&o.Programs, "programs", o.Programs, "folder with the programs agentd and coordinator; empty = the "+
		"folder of fedlab")
	f.StringVar(&o.Venv, "venv", o.Venv, "folder for Flower's Python environment, created if missing; empty = a "+
		"folder in the user's cache")
	f.StringVar(&o.Into, "into", "", "write the result tables into this Markdown page, between the markers for them")
	return cmd
}
