package main

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/lab/bench"
)

func benchManyCommand() *cobra.Command {
	o := bench.ManyDefaults()
	cmd := &cobra.Command{
		Use: "bench-many", Short: "Measure the speed of federations with a thousand or more agents",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Measure a coordinator, Mosquitto and many agents on this machine, each as a process:
the time until all are connected, the time of a round, processor time and memory.
With --fleet, 5,000 agents share a process and their local steps take no time, so
that only the coordinator and the broker are measured.

  fedlab bench-many --cells 1000x1000,1000x100000/10
  fedlab bench-many --fleet --cells 1000x100000/1000,10000x100000/1000 --reps 3

Mosquitto opens one file for each agent, and a process of a fleet opens three: see
ulimit -n. docs/BENCHMARKS.md contains results.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.RunMany(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Cells, "cells", o.Cells,
		"numbers of agents, model lengths and, unless all agents participate, participants per round, as "+
			"AGENTSxELEMENTS/DRAWN")
	f.BoolVar(&o.Fleet, "fleet", false, "run 5,000 agents per process, with local training steps that take no time")
	f.IntVar(&o.Reps, "reps", o.Reps, "number of runs of each configuration in --cells; the median is reported")
	f.IntVar(&o.Rounds, "rounds", 0, "measured rounds per run, at least 10; 0 = depends on the model length")
	f.StringVar(&o.Dir, "dir", o.Dir, "folder for the coordinator's state; empty = the folder for temporary files")
	f.StringVar(&o.Memory, "tmpfs", o.Memory, "folder in memory (tmpfs) for the agents' state")
	f.StringVar(&o.Programs, "programs", o.Programs, "folder with the programs agentd and coordinator; empty = the "+
		"folder of fedlab")
	cmd.AddCommand(fleetMembersCommand())
	return cmd
}

// fleetMembersCommand returns the hidden command that runs one process of a benchmark with many agents.
func fleetMembersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "members DIR FROM TO", Short: "Run one process of a benchmark with many agents", Hidden: true,
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err1 := strconv.Atoi(args[1])
			to, err2 := strconv.Atoi(args[2])
			if err := errors.Join(err1, err2); err != nil {
				return cli.UsageErrorf("%w", err)
			}
			return bench.RunMembers(cmd.Context(), args[0], from, to)
		},
	}
}
