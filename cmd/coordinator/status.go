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

// settingsWithoutValidation are settings without Validate. The user of a command that only needs the state folder may
// not be able to read the daemon's keys.
type settingsWithoutValidation coordinatorsettings.ConfigFile
