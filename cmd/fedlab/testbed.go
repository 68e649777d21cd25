package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/lab/testbed"
)

func upCommand() *cobra.Command {
	up := testbedCommand("up", "Run a whole federation on this machine, until Ctrl-C", testbed.Up)
	up.Long = `Run a whole federation on this machine, until Ctrl-C: a coordinator and agents, each a
process, at Mosquitto, watched by Prometheus and Grafana. Mosquitto, Prometheus and
Grafana are used where they are installed: without Mosquitto the broker is an embedded
one. All is on loopback and on free ports. At the end the newest model and the history
are written to the folder up, and nothing else is left; with --dir they are in that
folder, which stays.`
	up.AddCommand(
		testbedCommand("check", "Run it until all targets, dashboards and rules have data, or list those without",
			testbed.Check),
		testbedCommand("files", "Only make the folder of --dir; you start the programs yourself",
			func(_ context.Context, o testbed.Options) error { return testbed.Files(o) }))
	return up
}

// testbedCommand returns a command that performs one action on a testbed.
func testbedCommand(use, short string, do func(context.Context, testbed.Options) error) *cobra.Command {
	o := testbed.Defaults()
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return cli.UsageErrorf("%w", err)
			}
			o.Stdout = cmd.OutOrStdout()
			return do(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", o.Dir, "folder for all files, which stays; it must be new (default: a temporary one)")
	f.StringVar(&o.Bin, "bin", o.Bin, "folder with the programs agentd and coordinator (default: that of fedlab)")
	f.IntVar(&o.Agents, "agents", o.Agents, "number of agents, at least 6")
	f.BoolVar(&o.TLS, "tls", o.TLS, "give every client a certificate instead of a password; needs Mosquitto")
	switch use {
	case "up":
		f.BoolVar(&o.Cluster, "cluster", o.Cluster,
			"three coordinators that take turns, on three servers of NATS (nats-server)")
		f.DurationVar(&o.For, "for", o.For, "end after this time (default: at Ctrl-C)")
	case "check":
		f.DurationVar(&o.Limit, "limit", o.Limit, "how long the check may take")
	}
	return cmd
}
