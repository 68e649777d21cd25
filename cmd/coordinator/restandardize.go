package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/service"
)

func restandardizeCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "restandardize", Short: "Request a new statistics round at the coordinator's next start",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: "Request a new statistics round, which computes the means and scales of the columns again. The " +
			"coordinator's next start begins a new run with a statistics round and the newest model, converted to " +
			"the new scales. Run the command as the service's user; the coordinator may be running.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := service.CheckFolderOwnedBySelf("state folder", dir); err != nil {
				return err
			}
			run, err := coordinator.RequestRestandardization(dir)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"run %d ends at the coordinator's next start; a new run then begins with a statistics round and the "+
					"newest model. To restart the coordinator: systemctl restart coordinator\n", run)
			return err
		},
	}
	addStateDirFlags(cmd, &dir)
	return cmd
}
