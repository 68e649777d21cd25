package main

import (
	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/cmd/internal/cli"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
)

func taskCommand() *cobra.Command {
	var l cli.Loader
	show := &cobra.Command{
		Use: "show", Short: "Show the configured task, for `agentd data check --task FILE`",
		Args: cli.Args(cobra.NoArgs),
		Long: "Show the task of the configuration with all its keys, as YAML. On a device, `agentd data check --task " +
			"FILE` holds the device's data against it, without a broker. The keys need not be readable, and no " +
			"coordinator needs to run.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := taskOnly(settings.DefaultCoordinator())
			if err := settings.Load(&s, program, l.Path, l.Set); err != nil {
				return err
			}
			return (*settings.Coordinator)(&s).WriteTask(cmd.OutOrStdout())
		},
	}
	l.Flags(show, program)
	return cli.Group("task", "Show the task", show)
}

// taskOnly are settings of which only the task is checked: the user may not be able to read the keys.
type taskOnly settings.Coordinator

// Validate reports every problem of the task, by key.
func (s *taskOnly) Validate() error { return (*settings.Coordinator)(s).CheckTask() }
