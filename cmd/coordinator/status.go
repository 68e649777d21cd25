package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/cmd/internal/status"
)

func statusCommand() *cobra.Command {
	return status.Command(program, func(l *cli.Loader) (string, error) {
		s := unchecked(settings.DefaultCoordinator())
		err := settings.Load(&s, program, l.Path, l.Set)
		return s.StateDir, err
	})
}

// unchecked are settings without Validate: who asks what a daemon does need not
// be able to read its keys, nor have mended what is wrong with its file.
type unchecked settings.Coordinator
