package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/service"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/coordinator"
)

func restandardizeCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "restandardize", Short: "Ask for a new statistics round at the coordinator's next start",
		Args: cli.Args(cobra.NoArgs),
		Long: "Ask the coordinator to find the columns' means and scales anew when it starts next: in a new run, " +
			"which holds a statistics round and " +
			"goes on with the newest model, expressed in the new columns. Run it as the service's user; the " +
			"coordinator may be running.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := service.CheckOwner("the state folder", dir); err != nil {
				return err
			}
			run, err := coordinator.Restandardize(dir)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"run %d ends when the coordinator starts next, and a new one begins with a statistics round and then "+
					"with its newest model. "+
					"Restart the coordinator: systemctl restart coordinator\n", run)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "state-dir", settings.DefaultCoordinator().StateDir, "the coordinator's state folder")
	return cmd
}
