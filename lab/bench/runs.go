package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/lab/launch/daemons"
)

// Runs holds the options that are common to all benchmarks with separate processes.
type Runs struct {
	Reps     int    // number of runs of each contestant; the table shows the median
	Rounds   int    // number of measured rounds per run; 0 selects a number that suits the size of the model
	Dir      string // folder on disk for the coordinator's state; "" means the temporary folder
	Memory   string // in-memory folder for the agents' state
	Programs string // folder that contains agentd and coordinator; "" means the folder of the running program
}

// find fills empty folder options with folders of this machine.
func (o *Runs) find() error {
	self, err := os.Executable()
	o.Dir = cmp.Or(o.Dir, os.TempDir())
	o.Programs = cmp.Or(o.Programs, filepath.Dir(self))
	return err
}

func (o *Runs) check() error {
	if o.Reps < 1 || o.Rounds != 0 && o.Rounds < window {
		return fmt.Errorf("--reps must be at least 1 and --rounds must be 0 or at least %d, but they are %d and %d",
			window, o.Reps,
			o.Rounds)
	}
	return nil
}

// match is one benchmark case: a number of agents, a model size, and the results.
type match struct {
	agents, dim int
	drawn       int               // number of agents drawn in each round
	fleet       bool              // true if one process runs many agents that do no training
	runs        map[string][]race // results of all runs by contestant
}

// parseMatch parses a case AGENTSxELEMENTS, such as 10x1000, in which all agents participate. parseMatch returns nil if
// the text is invalid.
func parseMatch(text string) *match {
	agents, dim, ok := strings.Cut(text, "x")
	n, errN := strconv.Atoi(agents)
	d, errD := strconv.Atoi(dim)
	if !ok || errN != nil || errD != nil || n < 1 || d < 2 || hiddenUnits(d) == 0 {
		return nil
	}
	return &match{agents: n, drawn: n, dim: d, runs: map[string][]race{}}
}

// rounds returns the number of rounds to measure. Without the option Rounds, larger models get fewer rounds.
func (o *Runs) rounds(m *match) int {
	if o.Rounds > 0 {
		return o.Rounds
	}
	return min(max(20_000_000/(m.dim*m.drawn), 2*window), 200)
}

// runOurs runs and measures a fedmesh federation. The coordinator's state is in o.Dir and the agents' states are in
// folder.
func (o *Runs) runOurs(ctx context.Context, m *match, folder string) (race, error) {
	site, err := startMosquitto(m.agents, federation)
	if err != nil {
		return race{}, err
	}
	defer site.stop()
	f := &fleet{name: federation, site: site, agents: m.agents, drawn: m.drawn, dim: m.dim}
	defer f.close()
	leader, agents, err := f.layOut(o.Dir, folder)
	if err == nil {
		err = rowsFile(agents[0].Data.CSVPath, m.dim, dataRows) // All agents share one data file.
	}
	if err != nil {
		return race{}, err
	}
	leader.Task.BatchSize = 1
	c := newCrew(ctx, m.agents)
	defer c.Stop()
	c.broker = site.meter.broker
	if c.leader, err = o.daemon(c, f.folder, "coordinator", launch.Coordinator, leader); err != nil {
		return race{}, err
	}
	c.Go("history", func(ctx context.Context) error {
		return c.follow(ctx, filepath.Join(leader.StateDir, "history.jsonl"))
	})
	start := o.startAgents
	if m.fleet {
		start = o.startMembers
	}
	if err := start(c, f.folder, agents); err != nil {
		return race{}, err
	}
	return c.measure(o.rounds(m))
}

func (o *Runs) startAgents(c *crew, f *launch.Folder, agents []settings.Agent) error {
	for i := range agents {
		pid, err := o.daemon(c, f, "agentd", agents[i].ID, &agents[i])
		if err != nil {
			return err
		}
		c.agents = append(c.agents, pid)
	}
	return nil
}

// daemon writes the configuration of a program and starts the program.
func (o *Runs) daemon(c *crew, f *launch.Folder, program, name string, s any) (int, error) {
	path, err := daemons.PutSettings(f, name, s)
	if err != nil {
		return 0, err
	}
	return c.start(nil, filepath.Join(o.Programs, program), "run", "--config", path)
}
