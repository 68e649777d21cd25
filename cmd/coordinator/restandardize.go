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
		Use: "restandardize", Short: "Recompute the means and scales of the columns at the coordinator's next start",
		Args: cli.ArgsCheckWithUsageError(cobra.NoArgs),
		Long: "Request a new statistics round, which recomputes the means and scales of the columns from the data of " +
			"all agents. At its next start, the coordinator begins a new run with this statistics round and converts " +
			"the newest model to the new scales. Run the command as the service's user; the coordinator may be " +
			"running.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := service.CheckFolderOwnedBySelf("state folder", dir); err != nil {
				return err
			}
			run, err := coordinator.RequestRestandardization(dir)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"run %d ends at the coordinator's next start; a new run then recomputes the means and scales of the "+
					"columns and continues with the newest model. To restart the coordinator: systemctl restart "+
					"coordinator\n", run)
			return err
		},
	}
	addStateDirFlags(cmd, &dir)
	return cmd
}
