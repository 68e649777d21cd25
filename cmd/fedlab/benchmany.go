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
		Use: "bench-many", Short: "Measure federations of a thousand agents and more",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: `Measure a coordinator, Mosquitto and many agents on this machine, each a process:
how long they take to be there, the time of a round, processor time and memory.
With --fleet 5,000 agents share a process and their local steps cost nothing, so
that coordinator and broker are what is measured.

  fedlab bench-many --cells 1000x1000,1000x100000/10
  fedlab bench-many --fleet --cells 1000x100000/1000,10000x100000/1000 --reps 3

Mosquitto has an open file for each agent, and a process of a fleet three: see
ulimit -n. docs/BENCHMARKS.md has figures.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.RunMany(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Cells, "cells", o.Cells,
		"numbers of agents, lengths of the model, and how many agents take part in a round unless all do, as "+
			"AGENTSxELEMENTS/DRAWN")
	f.BoolVar(&o.Fleet, "fleet", false, "5,000 agents a process, whose local steps cost nothing")
	f.IntVar(&o.Reps, "reps", o.Reps, "runs of each, in turn; the medians count")
	f.IntVar(&o.Rounds, "rounds", 0, "rounds that are measured in a run, at least 10; 0 = by the size of the model")
	f.StringVar(&o.Dir, "dir", o.Dir, "folder of the coordinator's state; empty = that of temporary files")
	f.StringVar(&o.Memory, "tmpfs", o.Memory, "folder of the agents' state, in memory")
	f.StringVar(&o.Programs, "programs", o.Programs, "folder of agentd and coordinator; empty = where fedlab is")
	cmd.AddCommand(fleetMembersCommand())
	return cmd
}

// fleetMembersCommand returns the hidden command that runs one process of a fleet.
func fleetMembersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "members DIR FROM TO", Short: "Run a part of a fleet", Hidden: true,
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
