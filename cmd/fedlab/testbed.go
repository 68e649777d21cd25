package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/lab/testbed"
)

func upCommand() *cobra.Command {
	up := testbedCommand("up", "Run a complete federation on this machine, until Ctrl-C", testbed.Up)
	up.Long = `Run a complete federation on this machine, until Ctrl-C: a coordinator, agents and
Mosquitto, each as a process, monitored by Prometheus and Grafana. Mosquitto, Prometheus
and Grafana are used if they are installed; without Mosquitto, an embedded broker is
used. All programs use the loopback interface and free ports. At the end, the newest
model and the history are written to the folder up, and all other files are deleted.
With --dir, all files are written to that folder and kept.`
	up.AddCommand(
		testbedCommand("check", "Run the testbed until all monitoring targets, dashboards and alert rules have data, "+
			"or list those without data",
			testbed.Check),
		testbedCommand("files", "Only create the files in the folder --dir, without starting any program",
			func(_ context.Context, o testbed.Options) error { return testbed.Files(o) }))
	return up
}

// testbedCommand returns a command that performs one action on a testbed, such as starting or stopping it.
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
	f.StringVar(&o.Dir, "dir", o.Dir, "new folder for all files, which is kept afterwards (default: a temporary "+
		"folder, which is deleted)")
	f.StringVar(&o.Bin, "bin", o.Bin, "folder with the programs agentd and coordinator (default: the folder of fedlab)")
	f.IntVar(&o.Agents, "agents", o.Agents, "number of agents, at least 6")
	f.BoolVar(&o.TLS, "tls", o.TLS, "use a certificate instead of a password for every client; requires Mosquitto")
	switch use {
	case "up":
		f.BoolVar(&o.Cluster, "cluster", o.Cluster,
			"run a leader and two standby coordinators, which share their state on three NATS servers (nats-server)")
		f.DurationVar(&o.For, "for", o.For, "stop after this time (default: at Ctrl-C)")
	case "check":
		f.DurationVar(&o.Limit, "limit", o.Limit, "time limit of the subcommand check")
	}
	return cmd
}
