package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

func aclCommand() *cobra.Command {
	var l cli.ConfigLoader
	cmd := &cobra.Command{
		Use: "acl", Short: "Print the federation's access rules for Mosquitto (acl_file)",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := loadConfigFile(&l)
			if err != nil {
				return err
			}
			rules, err := mosquittoACL(s)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(rules)
			return err
		},
	}
	l.AddFlags(cmd, program)
	return cmd
}

// mosquittoACL returns Mosquitto access rules for a coordinator and the agents in its list. The list may be empty if
// devices join with tokens.
func mosquittoACL(s *coordinatorsettings.ConfigFile) ([]byte, error) {
	agents, err := s.AgentIDs()
	if err != nil {
		return nil, err
	}
	table, err := acl.NewRuleTable(s.Broker.Prefix)
	if err != nil {
		return nil, err
	}
	return table.MosquittoACLFile(wire.FederationName(s.Federation), agents, s.Round.Algorithm == spec.FedDec)
}
