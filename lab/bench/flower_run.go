package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/lab/launch"
)

const (
	warmUp   = 5  // number of rounds that are run before the measurement
	dataRows = 20 // number of data rows of each agent
	// window is the number of consecutive rounds that are timed together. The coordinator's history records times in
	// milliseconds, which is too coarse for a single short round.
	window = 10
)

// race is the result of one run of a contestant: the median time of a round, and the resource usage of its processes.
type race struct {
	ready                  time.Duration // time until all agents are connected and the first round starts
	took                   time.Duration
	leader, agent, broker  time.Duration // CPU time per round; agent is the mean over all agents
	leaderBytes, agentByte int           // proportional memory (PSS) in bytes; agentByte is the mean over all agents
	brokerBytes            int
	leaderMost             int // peak resident memory of the leader in bytes, including shared pages
}

// crew is the set of processes of one benchmark run: a coordinator or Flower server, its clients, and possibly a
// broker.
type crew struct {
	*launch.Group
	began   time.Time
	rounds  chan lap
	leader  int   // process id of the coordinator or of Flower's server
	agents  []int // process ids of the agents or of Flower's clients
	members int   // number of agents that run in these processes
	broker  int   // process id of the broker; 0 if the run has no broker
}

// lap is the start or the end of a round. took is the duration of the round and is zero at a start.
type lap struct {
	at   time.Time
	took time.Duration
}

func newCrew(ctx context.Context, agents int) *crew {
	return &crew{Group: launch.NewGroup(ctx), began: time.Now(), rounds: make(chan lap, 1<<10), members: agents}
}

// start starts a process and passes each line of its output to take, if take is not nil. The run fails as soon as any
// process ends.
func (c *crew) start(take func(line string), name string, args ...string) (pid int, err error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "FLWR_TELEMETRY_ENABLED=0")
	p, err := c.Start(cmd, launch.Options{Name: filepath.Base(name), OnLine: take, MaxLines: 10})
	if err != nil {
		return 0, err
	}
	return p.Cmd.Process.Pid, nil
}

// printed parses one output line of Flower's server. A line "round SECONDS" marks the start of a round.
func (c *crew) printed(line string) {
	var seconds float64
	if _, err := fmt.Sscanf(line, "round %g", &seconds); err == nil {
		c.rounds <- lap{at: time.UnixMicro(int64(seconds * 1e6))}
	}
}

// follow reads the end of each round from the coordinator's history file. It does not read the log, which omits
// frequent messages.
func (c *crew) follow(ctx context.Context, path string) error {
	var read int64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		f, err := os.Open(path)
		if err != nil {
			continue // The file is created at the end of the first round.
		}
		text, _ := io.ReadAll(io.NewSectionReader(f, read, 1<<20))
		_ = f.Close()
		whole := text[:bytes.LastIndexByte(text, '\n')+1]
		read += int64(len(whole))
		for line := range bytes.Lines(whole) {
			var round struct {
				Time    time.Time
				Seconds float64
			}
			if err := json.Unmarshal(line, &round); err == nil {
				c.rounds <- lap{round.Time, time.Duration(round.Seconds * float64(time.Second))}
			}
		}
	}
}

// measure measures a number of rounds after the warm-up rounds.
func (c *crew) measure(rounds int) (r race, err error) {
	var before used
	var times []time.Time
	for k := range warmUp + rounds + 1 {
		var l lap
		select {
		case l = <-c.rounds:
		case <-c.Context().Done():
			return r, context.Cause(c.Context())
		case <-time.After(10 * time.Minute):
			return r, errors.New("no round completed within 10 minutes")
		}
		switch k {
		case 0:
			r.ready = l.at.Add(-l.took).Sub(c.began)
		case warmUp:
			before = c.used()
		}
		if k >= warmUp {
			times = append(times, l.at)
		}
	}
	after := c.used()
	n := time.Duration(rounds)
	r.took, r.leader, r.broker = typical(times), (after.leader-before.leader)/n, (after.broker-before.broker)/n
	r.agent = (after.agents - before.agents) / n / time.Duration(c.members)
	shared := func(pid int) int { return launch.Memory(pid, "smaps_rollup", "Pss") }
	r.leaderBytes, r.leaderMost = shared(c.leader), launch.Memory(c.leader, "status", "VmHWM")
	r.brokerBytes = shared(c.broker)
	for _, pid := range c.agents {
		r.agentByte += shared(pid) / c.members
	}
	return r, nil
}

// typical returns the typical duration of a round: the median over windows of consecutive rounds, each of which is
// averaged. times holds the times at which rounds began or ended.
func typical(times []time.Time) time.Duration {
	var all []time.Duration
	for k := range len(times) - window {
		all = append(all, times[k+window].Sub(times[k])/window)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// used is the CPU time that the processes of a run have used so far.
type used struct{ leader, agents, broker time.Duration }

func (c *crew) used() used {
	u := used{leader: launch.CPUTime(c.leader), broker: launch.CPUTime(c.broker)}
	for _, pid := range c.agents {
		u.agents += launch.CPUTime(pid)
	}
	return u
}

// rowsFile writes a CSV file of random rows whose columns match a network with d parameters.
func rowsFile(path string, d, rows int) error {
	names := features(d)
	rng, text := rand.New(rand.NewPCG(1, 1)), []byte(strings.Join(names, ",")+",y\n")
	for range rows {
		sum := 0.0
		for range names {
			x := rng.NormFloat64()
			text, sum = fmt.Appendf(text, "%.4f,", x), sum+x
		}
		text = fmt.Appendf(text, "%.4f\n", 2*sum+0.1*rng.NormFloat64())
	}
	return os.WriteFile(path, text, 0o600)
}

// runFlower runs a Flower server and its clients.
func (o *FlowerOptions) runFlower(ctx context.Context, m *match) (race, error) {
	dir, err := os.MkdirTemp(o.Memory, "fedmesh-bench-")
	if err != nil {
		return race{}, err
	}
	defer os.RemoveAll(dir)
	program, data := filepath.Join(dir, "flower.py"), filepath.Join(dir, "data.csv")
	if err := errors.Join(os.WriteFile(program, flowerProgram, 0o600), rowsFile(data, m.dim, dataRows)); err != nil {
		return race{}, err
	}
	free, err := launch.FreeAddresses(1)
	if err != nil {
		return race{}, err
	}
	address := free[0]
	c := newCrew(ctx, m.agents)
	defer c.Stop()
	rounds := o.rounds(m)
	c.leader, err = c.start(c.printed, o.python(), program, "server", address, strconv.Itoa(m.agents),
		strconv.Itoa(m.dim), strconv.Itoa(len(features(m.dim))), strconv.Itoa(warmUp+rounds+10))
	if err != nil {
		return race{}, err
	}
	for range m.agents {
		pid, err := c.start(nil, o.python(), program, "client", address, data)
		if err != nil {
			return race{}, err
		}
		c.agents = append(c.agents, pid)
	}
	return c.measure(rounds)
}
