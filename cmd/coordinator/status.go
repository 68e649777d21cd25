package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/status"
)

func statusCommand() *cobra.Command {
	return status.Command(program, func(l *cli.Loader) (string, error) {
		s, err := load(l)
		if err != nil {
			return "", err
		}
		return s.StateDir, nil
	})
}
