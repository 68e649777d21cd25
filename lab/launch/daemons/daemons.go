// Package daemons runs the coordinator and agents of a federation in this process.
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

// Place gives all members of a federation their names, keys and state directories in a folder, and writes the list of
// agents. connect sets how a member reaches the broker.
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

// PutSettings writes the configuration of an agent or a coordinator, and returns its path.
func PutSettings(f *launch.Folder, id string, settings any) (path string, err error) {
	var text bytes.Buffer
	if err := config.WriteYAML(&text, settings); err != nil {
		return "", err
	}
	return f.ConfigFile(id), os.WriteFile(f.ConfigFile(id), text.Bytes(), 0o600)
}

// RunCoordinator adds a coordinator to a group.
func RunCoordinator(g *launch.Group, s *coordinatorsettings.ConfigFile, o coordinatord.Options) {
	g.Go("coordinator", func(ctx context.Context) error { return coordinatord.Run(ctx, s, o) })
}

// RunAgent adds an agent to a group.
func RunAgent(g *launch.Group, s *settings.Agent, o agentd.Options) {
	g.Go("agent "+s.ID, func(ctx context.Context) error { return agentd.Run(ctx, s, o) })
}
