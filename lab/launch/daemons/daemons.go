// Package daemons runs a coordinator and agents inside the current process, for simulations and benchmarks.
package daemons

import (
	"bytes"
	"context"
	"os"

	"github.com/fedmesh/fedmesh/internal/agentd"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/wire"
)

// Place prepares a federation in folder f: it sets the id, key files and state directories of all members and writes
// the list of agents. connect sets the broker settings of one member.
func Place(f *launch.Folder, c *coordinatorsettings.ConfigFile, agents []settings.Agent,
	connect func(b *settings.Broker, id wire.AgentID) error) error {
	var list []byte
	for i := range agents {
		s := &agents[i]
		line, err := f.NewAgent(s.ID)
		if err != nil {
			return err
		}
		list = append(list, line...)
		s.Federation, s.StateDir = f.Name, f.StateDir(s.ID)
		s.Identity = settings.AgentIdentity{KeyFile: f.KeyFile(s.ID), CoordinatorKey: f.CoordinatorKey}
		if err := connect(&s.Broker, wire.AgentID(s.ID)); err != nil {
			return err
		}
	}
	c.Federation, c.StateDir = f.Name, f.StateDir(launch.Coordinator)
	c.Identity = coordinatorsettings.IdentityFiles{KeyFile: f.KeyFile(launch.Coordinator),
		AgentListFile: f.AgentsFile(launch.Coordinator)}
	if err := connect(&c.Broker, wire.CoordinatorID); err != nil {
		return err
	}
	return f.Put("agents.keys", list)
}

// PutSettings writes the YAML configuration file of an agent or coordinator and returns the path of the file.
func PutSettings(f *launch.Folder, id string, settings any) (path string, err error) {
	var text bytes.Buffer
	if err := config.WriteYAML(&text, settings); err != nil {
		return "", err
	}
	return f.ConfigFile(id), os.WriteFile(f.ConfigFile(id), text.Bytes(), 0o600)
}

// RunCoordinator runs a coordinator as a member of group g.
func RunCoordinator(g *launch.Group, s *coordinatorsettings.ConfigFile, o coordinatord.Options) {
	g.Go("coordinator", func(ctx context.Context) error { return coordinatord.Run(ctx, s, o) })
}

// RunAgent runs an agent as a member of group g.
func RunAgent(g *launch.Group, s *settings.Agent, o agentd.Options) {
	g.Go("agent "+s.ID, func(ctx context.Context) error { return agentd.Run(ctx, s, o) })
}
