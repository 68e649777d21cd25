//go:build nightly

package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
)

// programs is the folder with the compiled programs. TestMain sets it.
var programs testkit.Programs

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, filepath.Join("..", "..", ".."), &programs)) }

// cell describes a federation: number of agents, participants per round, hello messages that a round waits for, and
// model size in bytes.
type cell struct{ agents, drawn, target, model int }

// Federations to measure. The costs are fitted to all of them except held, which checks the predictions. Federations
// with different ratios of hello messages, updates and megabytes are needed to separate the costs.
var (
	fitted = []cell{{500, 125, 150, 200_000}, {500, 125, 380, 4_000}, {1000, 250, 300, 4_000},
		{1000, 250, 760, 100_000}, {2000, 500, 600, 100_000}, {2000, 500, 1500, 4_000}, {2000, 60, 100, 4_000}}
	fittedOnNATS = []cell{fitted[0], fitted[1], fitted[2], fitted[3], fitted[6], fitted[5]}
	held         = cell{1500, 375, 700, 50_000}
)

const (
	warmUp   = 2               // number of rounds before the measurement
	parts    = 3               // number of measurements per federation
	together = 4               // number of rounds per measurement
	resting  = 5 * time.Second // duration of the measurement while the broker is idle
)

// TestScale measures all federations, fits the costs and checks the predictions with another federation. With -update
// it stores the measurement for docs/SCALE.md.
func TestScale(t *testing.T) {
	f := Fit{Machine: fmt.Sprintf("%d cores, %s/%s, broker and coordinator on one machine", runtime.NumCPU(),
		runtime.GOOS, runtime.GOARCH)}
	f.Samples, f.Held, f.Connection = measureAll(t, newMosquitto, fitted)
	f.Cluster.Nodes = nodes
	f.Cluster.Samples, f.Cluster.Held, f.Cluster.Connection = measureAll(t, newCluster, fittedOnNATS)
	if err := f.solve(); err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(&f, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(fitFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// measureAll measures each federation on a new broker. The last federation is not used for fitting. It measures the
// cost of idle connections with the last fitted federation, which has the most agents.
func measureAll(t *testing.T, open func(*testing.T) engine, cells []cell) (all []Sample, last Sample, one Connection) {
	for _, c := range cells {
		samples, connection := c.measure(t, open(t))
		all, one = append(all, samples...), connection
	}
	samples, _ := held.measure(t, open(t))
	last = Sample{Agents: held.agents, Drawn: held.drawn, Model: held.model}
	for _, s := range samples {
		last.Load = last.Load.plus(s.Load)
		last.Coordinator += s.Coordinator
		last.Broker += s.Broker
		last.Seconds += s.Seconds
	}
	return all, last, one
}

func (l Load) plus(m Load) Load {
	return Load{l.Rounds + m.Rounds, l.Hellos + m.Hellos, l.Updates + m.Updates, l.Up + m.Up, l.Down + m.Down,
		l.Recipients + m.Recipients}
}

// measure measures a federation on a broker, and then stops the broker.
func (c cell) measure(t *testing.T, broker engine) (samples []Sample, connection Connection) {
	defer broker.kill()
	urls := broker.urls()
	f := testkit.NewFederation(t, programs, "scale", `["`+strings.Join(urls, `", "`)+`"]`)
	agents, list := newCrowd(t, f.CoordinatorKey, c.agents)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before, used := broker.memory(t), broker.cpu(t)
	agents.connect(ctx, urls)
	defer agents.close()
	testkit.Until(t, "connections", func() bool { return agents.up.Load() >= int64(c.agents) })
	connection = Connection{Bytes: (broker.memory(t) - before) / float64(c.agents),
		Seconds: (broker.cpu(t) - used) / float64(c.agents)}
	used = broker.cpu(t)
	<-time.After(resting)
	connection.Idle = (broker.cpu(t) - used) / resting.Seconds()
	t.Logf("%+v: %+v", c, connection)
	f.ConfigureCoordinator(t,
		fmt.Sprintf("{name: scale, features: [x0], target: y, min_rows: 1, standardize: false, model: "+
			"{kind: mlp, hidden: [%d], activation: tanh, risk: squared}, step_size: {constant: 0.01}, "+
			"steps: {budget: 1s, min: 1, max: 1}}", c.model/12), list,
		fmt.Sprintf("{participants: %d, quorum: %d, rounds: 0, deadline: 1m, pause: 0s, gather: {minimum: %d, "+
			"within: 20s, spread: 2s, respond: {target: %d}}}", c.drawn, c.drawn, c.drawn, c.target))
	process := f.Daemon(t, "coordinator", "coordinator")
	defer process.Kill()
	for part := range parts {
		first := warmUp + part*together
		testkit.Until(t, "rounds", func() bool { return agents.rounds.Load() >= uint64(first) })
		load, busy, theirs := agents.load(), processorTime(t, process.Cmd.Process.Pid), broker.cpu(t)
		began := time.Now()
		testkit.Until(t, "rounds", func() bool { return agents.rounds.Load() >= uint64(first+together) })
		samples = append(samples, Sample{Agents: c.agents, Drawn: c.drawn, Model: c.model,
			Load:        agents.load().minus(load),
			Coordinator: processorTime(t, process.Cmd.Process.Pid) - busy, Broker: broker.cpu(t) - theirs,
			Seconds: time.Since(began).Seconds()})
		t.Logf("%+v: %+v", c, samples[part])
	}
	return samples, connection
}

// load returns the amount of work of the federation since its start.
func (c *crowd) load() Load {
	mb := func(n int64) float64 { return float64(n) / 1e6 }
	return Load{Rounds: float64(c.rounds.Load()), Hellos: float64(c.hellos.Load()), Updates: float64(c.updates.Load()),
		Up: mb(c.updates.Load() * int64(c.update.BlobLength)), Down: mb(c.received.Load()),
		Recipients: float64(c.recipients.Load())}
}

func (l Load) minus(m Load) Load {
	return Load{l.Rounds - m.Rounds, l.Hellos - m.Hellos, l.Updates - m.Updates, l.Up - m.Up, l.Down - m.Down,
		l.Recipients - m.Recipients}
}

// processorTime returns the CPU time of all threads of a process in seconds.
func processorTime(t *testing.T, pid int) (s float64) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // The thread has ended.
		}
		var nanoseconds float64
		if _, err := fmt.Sscan(strings.Fields(string(text))[0], &nanoseconds); err != nil {
			t.Fatal(err)
		}
		s += nanoseconds / 1e9
	}
	return s
}
