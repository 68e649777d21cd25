package bench

import (
	"context"
	"path/filepath"
	"runtime/debug"
	"strconv"

	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/lab/launch/daemons"
)

// perProcess is how many agents share a process: each has three open files, of which a process may have 20,000 on a
// system that allows for this many connections to Mosquitto.
const perProcess = 5000

// startMembers starts processes of many agents each.
func (o *Runs) startMembers(c *crew, f *launch.Folder, agents []settings.Agent) error {
	for i := range agents {
		if _, err := daemons.PutSettings(f, agents[i].ID, &agents[i]); err != nil {
			return err
		}
	}
	for from := 0; from < len(agents); from += perProcess {
		pid, err := c.start(nil, filepath.Join(o.Programs, "fedlab"), "bench-many", "members", f.Dir,
			strconv.Itoa(from), strconv.Itoa(min(from+perProcess, len(agents))))
		if err != nil {
			return err
		}
		c.agents = append(c.agents, pid)
	}
	return nil
}

// RunMembers runs some of the agents whose configurations are in a folder. Their local steps cost nothing.
func RunMembers(ctx context.Context, dir string, from, to int) error {
	debug.SetGCPercent(200) // in this process are the stacks of all agents
	f := launch.Folder{Dir: dir}
	var agents []settings.Agent
	for k := from; k < to; k++ {
		s := settings.DefaultAgent()
		if err := settings.Load(&s, "agentd", f.ConfigFile(string(agentID(k))), nil); err != nil {
			return err
		}
		agents = append(agents, s)
	}
	g := launch.NewGroup(ctx)
	defer g.Stop()
	runAgents(g, agents, quick{})
	<-g.Context().Done()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(g.Context())
}
