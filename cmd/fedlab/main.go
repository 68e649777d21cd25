// Command fedlab is a laboratory for federations. It runs whole federations on one machine, simulates large ones,
// reproduces published experiments, and runs benchmarks. Devices and servers do not need it.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/daemon"
)

func main() { os.Exit(cli.Main(rootCommand(), os.Args[1:])) }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "fedlab", Short: "Try, simulate and measure federations on one machine", Version: daemon.Version(),
	}
	root.AddCommand(demoCommand(), simulateCommand(), aggregateUpdatesCommand(), codecCommand(), reproduceCommand(),
		fleetCommand(), upCommand(), benchCommand(), benchFlowerCommand(), benchManyCommand())
	return root
}
