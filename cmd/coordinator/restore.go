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
		Use: "restore", Short: "Make agents obey a state folder that was restored from a backup",
		Args: cli.Args(cobra.NoArgs),
		Long: `Make agents obey a state folder that was restored from a backup.

Agents ignore announcements that are older than the last one they obeyed. This
command raises the epoch in the state folder, which is compared before run and
round: after the next start, agents continue from the backup's state and discard
later work. Run it once for each restored backup, as the service's user, while
the coordinator is stopped.`,
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
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: the epoch is raised: the next start continues from epoch %d run %d "+
		"round %d\n", dir, place.Epoch, place.Run, place.Round)
	return err
}
