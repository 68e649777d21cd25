package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/lab/bench"
)

func benchFlowerCommand() *cobra.Command {
	o := bench.FlowerDefaults()
	cmd := &cobra.Command{
		Use: "bench-flower", Short: "Race a federation of our programs against Flower",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Race a coordinator and agents, each a process, on Mosquitto, against Flower's
server and its clients over gRPC, with the same model, steps and risks, in turn.
It installs Flower from PyPI into a folder of its own, and takes half an hour.
docs/BENCHMARKS.md has the tables and says how to read them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.RunFlower(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Cells, "cells", o.Cells, "numbers of agents and lengths of the model, as AGENTSxELEMENTS")
	f.IntVar(&o.Reps, "reps", o.Reps, "runs of each contestant, in turn; the medians count")
	f.IntVar(&o.Rounds, "rounds", 0, "rounds that are measured in a run, at least 10; 0 = by the size of the model")
	f.StringVar(&o.Dir, "dir", o.Dir, "folder on the disk whose syncs are measured; empty = that of temporary files")
	f.StringVar(&o.Memory, "tmpfs", o.Memory, "folder in memory")
	f.StringVar(&o.Programs, "programs", o.Programs, "folder of agentd and coordinator; empty = where fedlab is")
	f.StringVar(&o.Venv, "venv", o.Venv, "folder of Flower, made if it is missing; empty = one in your cache")
	f.StringVar(&o.Into, "into", "", "write the tables into this page, between their marks")
	return cmd
}
