package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/cmd/internal/config"
	"github.com/fedmesh/fedmesh/cmd/internal/daemon"
	"github.com/fedmesh/fedmesh/cmd/internal/keys"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// federation is what the demo runs, laid out in a folder of its own.
type federation struct {
	options     Options
	dir         string
	name        string
	files       *files
	coordinator settings.Coordinator
	agents      []settings.Agent
	server      *broker.Server // nil with a broker of the user's
}

// layOut writes data, keys and settings, and starts the embedded broker.
func layOut(o Options, dir string, log *slog.Logger) (*federation, error) {
	f, err := writeData(dir)
	if err != nil {
		return nil, err
	}
	if err := o.Validate(len(f.stations)); err != nil {
		return nil, err
	}
	fed := &federation{options: o, dir: dir, files: f, name: "demo"}
	url := o.Broker
	if url == "" {
		if fed.server, err = broker.Start(broker.Options{Logger: log}); err != nil {
			return nil, err
		}
		url = fed.server.URL()
	} else {
		fed.name = "demo_" + strings.ToLower(rand.Text()[:10]) // what others keep at that broker is left alone
	}
	return fed, fed.enrol(url)
}

// enrol makes everyone's key and completes the settings.
func (fed *federation) enrol(url string) error {
	key, err := keys.Create(filepath.Join(fed.dir, "coordinator.key"))
	if err != nil {
		return err
	}
	var list []byte
	for i, station := range fed.files.stations {
		s := fed.options.agent(fed.files, i)
		s.Federation, s.Broker.URL = fed.name, url
		s.StateDir = filepath.Join(fed.dir, "agent-"+station)
		s.Identity = settings.AgentIdentity{KeyFile: filepath.Join(fed.dir, station+".key"), CoordinatorKey: keys.Format(keys.Public(key))}
		k, err := keys.Create(s.Identity.KeyFile)
		if err != nil {
			return err
		}
		list = fmt.Appendf(list, "%s %s\n", station, keys.Format(keys.Public(k)))
		fed.agents = append(fed.agents, s)
	}
	s := fed.options.coordinator(fed.files)
	s.Federation, s.Broker.URL = fed.name, url
	s.StateDir = filepath.Join(fed.dir, "coordinator")
	s.Identity = settings.CoordinatorIdentity{
		KeyFile: filepath.Join(fed.dir, "coordinator.key"), AgentsFile: filepath.Join(fed.dir, "agents.keys"),
	}
	fed.coordinator = s
	if err := os.WriteFile(s.Identity.AgentsFile, list, 0o600); err != nil {
		return err
	}
	return fed.coordinator.Validate()
}

// run works until the observer's federation is done or something fails.
func (fed *federation) run(ctx context.Context, w *watcher, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	reg := metrics.NewRegistry("coordinator")
	ofCoordinator, ofAgents := metrics.NewCoordinator(reg, time.Now), metrics.NewAgent(reg, time.Now)
	if err := daemon.Serve(ctx, settings.Metrics{Listen: fed.options.Metrics}, reg, log); err != nil {
		return err
	}
	run := fed.runAgent
	if fed.options.Processes {
		program, err := fed.agentd(ctx)
		if err != nil {
			return err
		}
		run = func(ctx context.Context, s *settings.Agent, _ daemon.AgentOptions) error {
			return fed.runProcess(ctx, program, s)
		}
	}
	var all sync.WaitGroup
	defer all.Wait()
	for i := range fed.agents {
		s := &fed.agents[i]
		all.Go(func() {
			if err := run(ctx, s, daemon.AgentOptions{Logger: log, Metrics: ofAgents}); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("agent %s: %w", s.ID, err))
			}
		})
	}
	all.Go(func() {
		err := daemon.RunCoordinator(ctx, &fed.coordinator, daemon.CoordinatorOptions{Logger: log, Observer: w, Metrics: ofCoordinator})
		if err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("coordinator: %w", err))
		}
	})
	err := w.wait(ctx)
	cancel(err)
	return err
}

func (fed *federation) runAgent(ctx context.Context, s *settings.Agent, o daemon.AgentOptions) error {
	return daemon.RunAgent(ctx, s, o)
}

// runProcess runs one agent as a process of its own, as on a device.
func (fed *federation) runProcess(ctx context.Context, program string, s *settings.Agent) error {
	path := filepath.Join(fed.dir, s.ID+".yaml")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	s.Log.Level = "warn"
	if err := errors.Join(config.Write(f, s), f.Close()); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "run", "--config", path)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stderr = fed.options.Stderr
	return cmd.Run()
}

// agentd finds the agent's program: the one that was named, the one beside
// this program, the one in PATH, or one built from this module.
func (fed *federation) agentd(ctx context.Context) (string, error) {
	if fed.options.Agentd != "" {
		return fed.options.Agentd, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "agentd")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	if path, err := exec.LookPath("agentd"); err == nil {
		return path, nil
	}
	built := filepath.Join(fed.dir, "agentd")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", built, "github.com/fedmesh/fedmesh/cmd/agentd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("--processes needs the agentd program: put it beside this one, or name it with --agentd (building it failed: %w\n%s)", err, out)
	}
	return built, nil
}
