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

// uncheckedSettings is settings.Agent without validation. It is used by commands that need only the state folder,
// because they must also work for users who cannot read the key files.
type uncheckedSettings settings.Agent
