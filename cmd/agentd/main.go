// Command agentd runs an agent. It trains on a device's own data and participates in the rounds of a federation.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/packaging/systemd"
)

const program = "agentd"

func main() { os.Exit(cli.Main(rootCommand(), os.Args[1:])) }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: program, Short: "Train on the device's own data, as an agent of a federation", Version: daemon.Version(),
	}
	root.AddCommand(joinCommand(), runCommand(), statusCommand(), dataCommand(), predictCommand(), modelCommand(),
		trainerCommand(), discoverCommand(),
		doctorCommand(), keyCommand(),
		cli.ConfigCommand(program, loadSettings, checkDataFileHeader), cli.ServiceCommand(systemd.Agent(),
			loadSettings))
	return root
}

func loadSettings(l *cli.ConfigLoader) (*settings.Agent, error) {
	s := settings.DefaultAgent()
	return &s, settings.Load(&s, program, l.Path, l.Overrides)
}
