package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/keys"
	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
	"github.com/fedmesh/fedmesh/wire"
)

func aclCommand() *cobra.Command {
	var l cli.Loader
	cmd := &cobra.Command{
		Use: "acl", Short: "Print the federation's access rules for Mosquitto (acl_file)", Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := load(&l)
			if err != nil {
				return err
			}
			agents, err := keys.AgentIDs(s.Identity.AgentsFile)
			if err != nil {
				return err
			}
			table, err := acl.New(s.Broker.Prefix)
			if err != nil {
				return err
			}
			rules, err := table.Mosquitto(wire.Federation(s.Federation), agents)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(rules)
			return err
		},
	}
	l.Flags(cmd, program)
	return cmd
}
