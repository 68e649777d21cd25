package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/status"
)

func statusCommand() *cobra.Command {
	return status.Command(program, func(l *cli.ConfigLoader) ([]string, error) {
		s := settingsWithoutValidation(coordinatorsettings.Default())
		err := settings.Load(&s, program, l.Path, l.Overrides)
		return []string{s.StateDir}, err
	})
}

// settingsWithoutValidation is the coordinator's configuration without validation. It is used by commands that need
// only the state folder, because they must also work for users who cannot read the key files.
type settingsWithoutValidation coordinatorsettings.ConfigFile
