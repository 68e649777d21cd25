package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/service"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

func backupCommand() *cobra.Command {
	var l cli.ConfigLoader
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Write a backup of the running coordinator",
		Args: cli.ArgsCheckWithUsageError(cobra.ExactArgs(1)),
		Long: "Write a backup of the running coordinator into a tar archive, for `coordinator restore FILE`. The " +
			"backup contains the run, the applied task, the models and the history at one moment. Rounds continue " +
			"meanwhile. The backup does not contain the key and the list of agents (identity.key_file, " +
			"identity.agents_file): keep copies of them, too.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := newAPIClient(&l)
			if err != nil {
				return err
			}
			r, err := c.CallStream(cmd.Context(), http.MethodGet, "/v1/backup", "application/x-tar", nil)
			if err != nil {
				return err
			}
			defer r.Close()
			n, err := writeFileAtomically(args[0], r)
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d bytes\n", args[0], n)
			}
			return err
		},
	}
	l.AddFlags(cmd, program)
	return cmd
}

// writeFileAtomically writes a temporary file and renames it to path after it is complete.
func writeFileAtomically(path string, r io.Reader) (n int64, err error) {
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return n, errors.Join(err, os.Remove(part))
	}
	return n, os.Rename(part, path)
}

func restoreCommand() *cobra.Command {
	var (
		l   cli.ConfigLoader
		dir string
	)
	cmd := &cobra.Command{
		Use: "restore [FILE]", Aliases: []string{"promote"}, Short: "Restore a backup, so that agents continue from " +
			"its state",
		Args: cli.ArgsCheckWithUsageError(cobra.MaximumNArgs(1)),
		Long: `Restore a backup into an empty state folder, and make agents follow it.

Agents ignore announcements that are older than the last announcement that they
followed. This command raises the epoch in the state folder, which agents compare
before run and round. After the next start, agents continue from the backup's state and
discard later work. Without FILE, the command only raises the epoch. Use this for a
state folder that was copied back by other means, or to another machine that takes over
(coordinator promote --state-dir DIR). Run it once for each restored backup, as the
service's user, while the coordinator is stopped.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir != "" {
				return restoreStateFolder(cmd, dir, args)
			}
			s := settingsWithoutValidation(coordinatorsettings.Default())
			if err := settings.Load(&s, program, l.Path, l.Overrides); err != nil {
				return err
			}
			return restoreStateFolder(cmd, s.StateDir, args)
		},
	}
	l.AddFlags(cmd, program)
	cmd.Flags().StringVar(&dir, "state-dir", "", "state folder, instead of state_dir in the configuration")
	return cmd
}

func restoreStateFolder(cmd *cobra.Command, dir string, args []string) (err error) {
	// Create a missing folder, because a backup contains all files of the state folder.
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && len(args) > 0 {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("cannot create the state folder: %w", err)
		}
		if os.Geteuid() == 0 { // as root, the command does not know the user of the service
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: warning: %s was created as root: if the service runs as another "+
				"user, change the owner of the folder (chown -R USER %[2]s)\n", program, dir)
		}
	}
	if err := service.CheckFolderOwnedBySelf("the state folder", dir); err != nil {
		return err
	}
	lock, err := store.LockStateFolder(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	place, err := restoreAndRaiseEpoch(dir, args)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: increased the epoch; at its next start, the coordinator continues "+
		"from epoch %d, run %d, round %d\n", dir, place.Epoch, place.Run, place.Round)
	return err
}

func restoreAndRaiseEpoch(dir string, args []string) (wire.AnnouncementPosition, error) {
	if len(args) == 0 {
		return runs.RaiseEpoch(dir)
	}
	f, err := os.Open(args[0])
	if err != nil {
		return wire.AnnouncementPosition{}, err
	}
	defer f.Close()
	return runs.RestoreBackup(dir, f)
}
