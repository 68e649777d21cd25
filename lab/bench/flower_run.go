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
	warmUp   = 5  // rounds that do not count
	dataRows = 20 // of each agent
	// window is how many rounds in a row are timed together: our history tells times in whole milliseconds, of which a
	// small round has few.
	window = 10
)

// race is a run of a contestant: the median time of a round, and what its processes used.
type race struct {
	ready                  time.Duration // until the first round was announced, which has all agents there
	took                   time.Duration
	leader, agent, broker  time.Duration // processor time of a round; agent: the mean of all
	leaderBytes, agentByte int           // memory, shared pages by halves (PSS); agent: the mean of all
	brokerBytes            int
	leaderMost             int // the most that was resident, with shared pages
}

// crew is the processes of a run.
type crew struct {
	*launch.Group
	began   time.Time
	rounds  chan lap
	leader  int   // process id
	agents  []int // process ids
	members int   // how many agents those are
	broker  int   // process id, 0 for none
}

// lap is when a round began, or ended and how long it took.
type lap struct {
	at   time.Time
	took time.Duration
}

func newCrew(ctx context.Context, agents int) *crew {
	return &crew{Group: launch.NewGroup(ctx), began: time.Now(), rounds: make(chan lap, 1<<10), members: agents}
}

// start starts a process, and calls take with each line of its output unless take is nil. The first process that ends
// fails the run.
func (c *crew) start(take func(line string), name string, args ...string) (pid int, err error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "FLWR_TELEMETRY_ENABLED=0")
	p, err := c.Start(cmd, launch.Options{Name: filepath.Base(name), OnLine: take, MaxLines: 10})
	if err != nil {
		return 0, err
	}
	return p.Cmd.Process.Pid, nil
}

// printed takes a line of Flower's server that tells when a round begins.
func (c *crew) printed(line string) {
	var seconds float64
	if _, err := fmt.Sscanf(line, "round %g", &seconds); err == nil {
		c.rounds <- lap{at: time.UnixMicro(int64(seconds * 1e6))}
	}
}

// follow reads when rounds end in the history of a coordinator. Its log drops lines that repeat too often.
func (c *crew) follow(ctx context.Context, path string) error {
	var read int64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Millisecond): // seldom: the processors are the contestants'
		}
		f, err := os.Open(path)
		if err != nil {
			continue // the first round is not over
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

// measure waits for rounds of a crew that has begun.
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
			return r, errors.New("no round in 10 minutes")
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

// typical is the time of a round, of rounds that began or ended at these times: the median over all windows.
func typical(times []time.Time) time.Duration {
	var all []time.Duration
	for k := range len(times) - window {
		all = append(all, times[k+window].Sub(times[k])/window)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// used is processor time until now.
type used struct{ leader, agents, broker time.Duration }

func (c *crew) used() used {
	u := used{leader: launch.CPUTime(c.leader), broker: launch.CPUTime(c.broker)}
	for _, pid := range c.agents {
		u.agents += launch.CPUTime(pid)
	}
	return u
}

// rowsFile writes data for a network of d numbers.
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

// runFlower runs a server and its clients.
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
