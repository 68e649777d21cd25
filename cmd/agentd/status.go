package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/status"
)

func statusCommand() *cobra.Command {
	var of federationFlag
	return of.addToCommand(status.Command(program, func(l *cli.ConfigLoader) (dirs []string, err error) {
		s := uncheckedSettings(settings.DefaultAgent())
		if err := settings.Load(&s, program, l.Path, l.Overrides); err != nil {
			return nil, err
		}
		all, err := of.selectedFederations((*settings.Agent)(&s))
		for _, m := range all {
			dirs = append(dirs, m.FederationFolder())
		}
		return dirs, err
	}))
}

// uncheckedSettings are settings without Validate. The user of a command that only needs the state folder may not be
// able to read the daemon's keys.
type uncheckedSettings settings.Agent
