package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/agentd"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/doctor"
	"github.com/fedmesh/fedmesh/internal/settings"
)

// federationFlag is the command-line flag that selects the federations of the device on which a command acts.
type federationFlag struct{ name string }

func (f *federationFlag) addToCommand(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&f.name, "federation", "", "name of the federation to use, required if the device is in "+
		"several federations")
	return cmd
}

// namedFederation returns the settings for the named federation.
func (f *federationFlag) namedFederation(s *settings.Agent) (*settings.Agent, error) {
	m, err := s.ForFederation(f.name)
	if err != nil {
		return nil, cli.UsageErrorf("%v", err)
	}
	return m, nil
}

// selectedFederations returns the settings for the named federation, or for all federations if no name is given.
func (f *federationFlag) selectedFederations(s *settings.Agent) ([]*settings.Agent, error) {
	if f.name == "" {
		return s.SettingsPerFederation(), nil
	}
	m, err := f.namedFederation(s)
	if err != nil {
		return nil, err
	}
	return []*settings.Agent{m}, nil
}

func doctorCommand() *cobra.Command {
	var of federationFlag
	return of.addToCommand(doctor.Command(program, loadSettings, func(s *settings.Agent) (targets []*doctor.Target,
		err error) {
		all, err := of.selectedFederations(s)
		for _, m := range all {
			t, err := agentd.DoctorTarget(m)
			if err != nil {
				return nil, err
			}
			targets = append(targets, t)
		}
		return targets, err
	}))
}
