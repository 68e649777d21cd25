package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/daemon"
	"github.com/fedmesh/fedmesh/cmd/internal/doctor"
)

func doctorCommand() *cobra.Command {
	return doctor.Command(program, func(l *cli.Loader) (*doctor.Target, error) {
		s, err := load(l)
		if err != nil {
			return nil, err
		}
		return daemon.CoordinatorTarget(s)
	})
}
