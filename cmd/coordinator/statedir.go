package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
)

// addStateDirFlags adds the flags --config and --state-dir to a command. With these flags the command finds the state
// folder without a running coordinator.
func addStateDirFlags(cmd *cobra.Command, dir *string) {
	var file string
	flags := cmd.PersistentFlags()
	flags.StringVar(dir, "state-dir", coordinatorsettings.Default().StateDir, "state folder of the coordinator")
	flags.StringVarP(&file, "config", "c", "", "configuration file from which to read the path of the state folder, "+
		"instead of --state-dir")
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			return nil
		}
		if cmd.Flags().Changed("state-dir") {
			return cli.UsageErrorf("use either --config or --state-dir, not both")
		}
		s := settingsWithoutValidation(coordinatorsettings.Default())
		if err := settings.Load(&s, program, file, nil); err != nil {
			return err
		}
		*dir = s.StateDir
		return nil
	}
}
