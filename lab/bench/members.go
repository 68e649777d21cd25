package bench

import (
	"context"
	"path/filepath"
	"runtime/debug"
	"strconv"

	"github.com/fedmesh/fedmesh/internal/settings"
)

// perProcess is how many agents share a process: each has three open files, of which a process may have 20,000 on a
// system that allows for this many connections to Mosquitto.
const perProcess = 5000

// startMembers starts processes of many agents each.
func (o *Runs) startMembers(c *crew, dir string, agents []*settings.Agent) error {
	for k, s := range agents {
		if err := writeConfig(memberConfig(dir, k), s); err != nil {
			return err
		}
	}
	for from := 0; from < len(agents); from += perProcess {
		pid, err := c.start(nil, filepath.Join(o.Programs, "fedlab"), "bench-many", "members", dir,
			strconv.Itoa(from), strconv.Itoa(min(from+perProcess, len(agents))))
		if err != nil {
			return err
		}
		c.agents = append(c.agents, pid)
	}
	return nil
}

func memberConfig(dir string, k int) string { return filepath.Join(dir, string(agentID(k))+".yaml") }

// RunMembers runs some of the agents whose configurations are in a folder. Their local steps cost nothing.
func RunMembers(ctx context.Context, dir string, from, to int) error {
	debug.SetGCPercent(200) // in this process are the stacks of all agents
	var agents []*settings.Agent
	for k := from; k < to; k++ {
		s := settings.DefaultAgent()
		if err := settings.Load(&s, "agentd", memberConfig(dir, k), nil); err != nil {
			return err
		}
		agents = append(agents, &s)
	}
	ctx, end := context.WithCancel(ctx)
	f := &fleet{failed: make(chan error, 1), end: end}
	defer f.close()
	f.startAgents(ctx, agents, quick{})
	select {
	case err := <-f.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}
