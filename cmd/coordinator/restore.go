package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/service"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/store"
)

func restoreCommand() *cobra.Command {
	var l cli.Loader
	cmd := &cobra.Command{
		Use: "restore", Short: "Make agents obey a state folder that was put back from a backup",
		Args: cli.Args(cobra.NoArgs),
		Long: `Make agents obey a state folder that was put back from a backup.

Agents obey nothing that is older than what they have obeyed. This raises the
epoch in the state folder, which counts before run and round: from the next
start on, agents go on from where the backup stands, and throw away what they
did after that. Run it once for each backup that is put back, as the service's
user, while the coordinator is stopped.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := unchecked(settings.DefaultCoordinator())
			if err := settings.Load(&s, program, l.Path, l.Set); err != nil {
				return err
			}
			return restore(cmd, s.StateDir)
		},
	}
	l.Flags(cmd, program)
	return cmd
}

func restore(cmd *cobra.Command, dir string) (err error) {
	if err := service.CheckOwner("the state folder", dir); err != nil {
		return err
	}
	lock, err := store.Lock(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	place, err := coordinator.Restore(dir)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: restored: the next start goes on from epoch %d run %d round %d\n", dir,
		place.Epoch, place.Run, place.Round)
	return err
}
