package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/fedlab/internal/testbed"
	"github.com/fedmesh/fedmesh/cmd/internal/cli"
)

func testbedCommand() *cobra.Command {
	return cli.Group("testbed", "Run Mosquitto, Prometheus, a coordinator and agents on this machine",
		testbedStep("up", "Run a testbed until Ctrl-C", testbed.Up),
		testbedStep("check", "Run a testbed until all targets, dashboards and rules have data, or list those without",
			testbed.Check),
		testbedStep("files", "Only make the folder of a testbed; you start the programs yourself",
			func(_ context.Context, o testbed.Options) error { return testbed.Files(o) }))
}

// testbedStep returns a command that does one thing with a testbed.
func testbedStep(use, short string, do func(context.Context, testbed.Options) error) *cobra.Command {
	o := testbed.Defaults()
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return cli.Usage("%w", err)
			}
			o.Stdout = cmd.OutOrStdout()
			return do(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", o.Dir, "folder for all files; it must be new (default: a temporary one)")
	f.StringVar(&o.Bin, "bin", o.Bin, "folder with the programs agentd and coordinator")
	f.IntVar(&o.Agents, "agents", o.Agents, "number of agents, at least 6")
	f.BoolVar(&o.TLS, "tls", o.TLS, "give every client a certificate instead of a password")
	if use == "check" {
		f.DurationVar(&o.Limit, "limit", o.Limit, "how long the check may take")
	}
	return cmd
}
