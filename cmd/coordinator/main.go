// Command coordinator runs the parameter server of a federation. It announces rounds, collects and averages the agents'
// updates, and publishes the model.
package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/fedmesh/fedmesh/coordinator/edges"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/doctor"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/packaging/systemd"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
)

const program = "coordinator"

func main() { os.Exit(cli.Main(rootCommand(), os.Args[1:])) }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: program, Short: "Coordinate a federation of agents that train one model on their own data",
		Version: daemon.Version(),
	}
	root.AddCommand(initCommand(), runCommand(), statusCommand(), enrolCommand(), devicesCommand(),
		rootDocumentCommand(),
		taskCommand(), modelCommand(), historyCommand(), auditCommand(), backupCommand(), restoreCommand(),
		restandardizeCommand(), aclCommand(), cli.KeyCommand(),
		doctor.Command(program, loadConfigFile, doctorTargets), cli.ConfigCommand(program, loadConfigFile, nil),
		cli.ServiceCommand(systemd.Coordinator(), loadConfigFile))
	return root
}

// doctorTargets returns the targets that the doctor command checks.
func doctorTargets(s *coordinatorsettings.ConfigFile) ([]*doctor.Target, error) {
	return coordinatord.DoctorTargets(s, natsStoreOpener(slog.New(slog.DiscardHandler)))
}

func loadConfigFile(l *cli.ConfigLoader) (*coordinatorsettings.ConfigFile, error) {
	s := coordinatorsettings.Default()
	if err := settings.Load(&s, program, l.Path, l.Overrides); err != nil {
		return &s, err
	}
	_, err := newMeshBuilder(&s)
	return &s, err
}

// newMeshBuilder returns a function that selects the neighbours with which agents mix their models, or nil if agents do
// not mix. The function is not in package coordinatord, because agentd must not link the graph packages.
func newMeshBuilder(s *coordinatorsettings.ConfigFile) (func([]round.MixingAgent) (meshplan.MixingGraph, error),
	error) {
	if s.Round.Algorithm != spec.FedDec {
		return nil, nil
	}
	m, err := edges.New(s.Mesh.Edges, s.Mesh.EdgeRadius, s.Mesh.EdgeFile, s.Mesh.Weights)
	if err != nil {
		return nil, &config.Error{Origin: "mesh", Problem: err.Error(), Err: err}
	}
	return m.MakeMesh, nil
}
