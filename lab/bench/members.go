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

// perProcess is the number of agents per process. Each agent has three open files, so 5,000 agents stay below a limit
// of 20,000 open files per process.
const perProcess = 5000

// startMembers divides the agents among several processes and starts them.
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

// RunMembers runs the agents with numbers from `from` to `to` in this process, with the configuration files in dir. The
// agents do no training.
func RunMembers(ctx context.Context, dir string, from, to int) error {
	debug.SetGCPercent(200) // Collect garbage rarely, because this process runs many agents.
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
