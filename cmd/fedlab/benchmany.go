package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/fedlab/internal/bench"
	"github.com/fedmesh/fedmesh/cmd/internal/cli"
)

func benchManyCommand() *cobra.Command {
	o := bench.ManyDefaults()
	cmd := &cobra.Command{
		Use: "bench-many", Short: "Measure federations of a thousand agents and more", Args: cli.Args(cobra.NoArgs),
		Long: `Measure a coordinator, Mosquitto and many agents on this machine, each a process:
how long they take to be there, the time of a round, processor time and memory.
With --fleet all agents are in one process and their local steps cost nothing,
so that coordinator and broker are what is measured.

  fedlab bench-many --cells 1000x1000,1000x100000/10
  fedlab bench-many --fleet --cells 1000x100000/1000,10000x100000/1000 --reps 3

An agent keeps about 10 files and connections open, and Mosquitto one for each:
see ulimit -n. docs/BENCHMARKS.md has figures.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.RunMany(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Cells, "cells", o.Cells,
		"numbers of agents, lengths of the model, and how many agents take part in a round unless all do, as "+
			"AGENTSxELEMENTS/DRAWN")
	f.BoolVar(&o.Fleet, "fleet", false, "all agents in one process, whose local steps cost nothing")
	f.IntVar(&o.Reps, "reps", o.Reps, "runs of each, in turn; the medians count")
	f.IntVar(&o.Rounds, "rounds", 0, "rounds that are measured in a run; 0 = by the size of the model")
	f.StringVar(&o.Dir, "dir", o.Dir, "folder of the coordinator's state; empty = that of temporary files")
	f.StringVar(&o.Memory, "tmpfs", o.Memory, "folder of the agents' state, in memory")
	f.StringVar(&o.Programs, "programs", o.Programs, "folder of agentd and coordinator; empty = where fedlab is")
	return cmd
}
