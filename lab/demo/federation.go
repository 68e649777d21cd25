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
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/internal/agentd"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/lab/launch/daemons"
	"github.com/fedmesh/fedmesh/lab/liar"
	"github.com/fedmesh/fedmesh/lab/slow"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/metrics/coordinatormetrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// federation is a federation of the demo: the coordinator, the agents, their settings and their files in a folder.
type federation struct {
	*launch.Folder
	options     Options
	log         *slog.Logger
	files       *files
	plan        plan
	coordinator coordinatorsettings.ConfigFile
	agents      []settings.Agent
	topics      mqtt.Topics
	server      *broker.Server                                          // embedded broker; nil if not started
	edges       func([]round.MixingAgent) (meshplan.MixingGraph, error) // computes the mixing graph; nil without mixing
	// host runs an agent. If host is nil, run starts each agent in this process or, with --processes, in a separate
	// process.
	host    func(context.Context, *settings.Agent) error
	reached bool                        // true after a client has connected to the broker
	before  func(context.Context) error // called before the coordinator starts; may be nil
	// after is called when the run has finished. after is nil unless the agents publish forecasts.
	after func(context.Context) (*Predictions, error)
	site  *site // broker for the stations' readings; nil if agents read CSV files

	predictions *Predictions // value that the function after has returned

	registry      *prometheus.Registry
	ofCoordinator *coordinatormetrics.CoordinatorMetrics
	ofAgents      *agentd.Metrics
}

// plan provides the settings of the coordinator and of each agent.
type plan interface {
	coordinator() coordinatorsettings.ConfigFile
	agent(i int) settings.Agent
}

// layOut writes the data, keys and settings of the demo and starts the embedded broker. If it returns an error, it has
// stopped the broker, and the caller removes only dir.
func layOut(o Options, dir string, log *slog.Logger) (*federation, error) {
	f, err := writeData(dir)
	if err != nil {
		return nil, err
	}
	return newFederation(o, f, together{&o, f}, dir, log)
}

// newFederation writes keys and settings to dir. If Options.Broker is empty, it also starts the embedded broker.
func newFederation(o Options, f *files, p plan, dir string, log *slog.Logger) (_ *federation, err error) {
	reg := metrics.NewRegistry("coordinator")
	fed := &federation{
		options: o, log: log, files: f, plan: p,
		registry: reg, ofCoordinator: coordinatormetrics.New(reg, time.Now), ofAgents: agentd.NewMetrics(reg, ""),
	}
	name, url := "demo", o.Broker
	if url != "" {
		name = "demo_" + strings.ToLower(rand.Text()[:10])
	}
	if fed.Folder, err = launch.NewFolder(dir, name); err != nil {
		return nil, err
	}
	if url != "" {
		return fed, fed.enrol(url)
	}
	if fed.server, err = startBroker(fed.Folder, log); err != nil {
		return nil, err
	}
	if err := fed.enrol(fed.server.URL()); err != nil {
		return nil, errors.Join(err, fed.server.Close())
	}
	return fed, nil
}

// startBroker starts the embedded broker with the default access rules. It accepts only users with a password file in
// the folder, which keeps out other programs on this machine.
func startBroker(f *launch.Folder, log *slog.Logger) (*broker.Server, error) {
	rules, err := acl.NewRuleTable("")
	if err != nil {
		return nil, err
	}
	return broker.Start(broker.Options{
		Authenticate: f.Authenticate, Allow: rules.Allowed, Quota: rules.RetainedBytesQuota, Logger: log,
	})
}

// reach sets the broker URL and the credentials in the settings of an agent or the coordinator.
func (fed *federation) reach(b *settings.Broker, url string, id wire.AgentID) error {
	b.URLs = config.OneOrMore{url}
	if fed.server == nil {
		o := &fed.options
		b.Username, b.PasswordFile, b.CAFile = o.Username, o.PasswordFile, o.CAFile
		return nil
	}
	b.Username = fed.topics.ClientID(id)
	b.PasswordFile = fed.PasswordFile(b.Username)
	return fed.PutPassword(b.Username, rand.Text())
}

// enrol creates the keys of all agents, writes the list of agents, and completes all settings.
func (fed *federation) enrol(url string) (err error) {
	if fed.topics, err = mqtt.NewTopics("", fed.Name); err != nil {
		return err
	}
	for i := range fed.files.stations {
		fed.agents = append(fed.agents, fed.plan.agent(i))
	}
	fed.coordinator = fed.plan.coordinator()
	if err := daemons.Place(fed.Folder, &fed.coordinator, fed.agents,
		func(b *settings.Broker, id wire.AgentID) error { return fed.reach(b, url, id) }); err != nil {
		return err
	}
	for i := range fed.agents {
		s := &fed.agents[i]
		if s.D2D != nil && !s.D2D.UsesUplink {
			s.D2D.Broker.Username, s.D2D.Broker.PasswordFile = s.Broker.Username, s.Broker.PasswordFile
			s.D2D.Broker.CAFile = s.Broker.CAFile
		}
		if err := config.Load(s, config.Source{Overrides: fed.options.AgentSet}); err != nil {
			return fmt.Errorf("--agent-set: %w", err)
		}
	}
	if err := config.Load(&fed.coordinator, config.Source{Overrides: fed.options.Set}); err != nil {
		return fmt.Errorf("--set: %w", err)
	}
	return nil
}

// serve serves the metrics of all daemons if an address is given, and returns their URL.
func (fed *federation) serve(ctx context.Context) (string, error) {
	s, err := daemon.ServeMetrics(ctx, fed.options.Metrics, metrics.Handler(fed.registry, daemon.AlwaysReady), fed.log)
	return s.URL(), err
}

// run runs the federation until the run is finished or an error occurs.
func (fed *federation) run(ctx context.Context, w *watcher) error {
	g := launch.NewGroup(ctx)
	defer g.Stop()
	runAgent := fed.host
	if runAgent == nil {
		var err error
		if runAgent, err = fed.runner(ctx); err != nil {
			return err
		}
	}
	for i := range fed.agents {
		s := &fed.agents[i]
		g.Go("agent "+s.ID, func(ctx context.Context) error { return runAgent(ctx, s) })
	}
	if fed.options.Page {
		free, err := launch.FreeAddresses(1)
		if err != nil {
			return err
		}
		fed.coordinator.Console.Listen = free[0]
		fmt.Fprintf(fed.options.Stderr, "console of federation %s: http://%s/\n", fed.Name, free[0])
	}
	g.Go("coordinator", func(ctx context.Context) error {
		if fed.before != nil {
			if err := fed.before(ctx); err != nil {
				return err
			}
		}
		return coordinatord.Run(ctx, &fed.coordinator,
			coordinatord.Options{Logger: fed.log, Observer: w, Metrics: fed.ofCoordinator, NewMeshBuilder: fed.edgesOf,
				RecentRecords: fed.options.recent})
	})
	err := w.wait(g.Context())
	if err == nil && fed.options.Page {
		fmt.Fprintln(fed.options.Stderr, "the run has finished; press Ctrl-C to close the console and to see the "+
			"result")
		<-g.Context().Done()
	}
	if err == nil && fed.after != nil {
		fed.predictions, err = fed.after(g.Context())
	}
	return err
}

// runner returns the function that runs one agent, in this process or in a separate one.
func (fed *federation) runner(ctx context.Context) (func(context.Context, *settings.Agent) error, error) {
	if !fed.options.Processes {
		return func(ctx context.Context, s *settings.Agent) error {
			return agentd.Run(ctx, s, agentd.Options{Logger: fed.log, Metrics: fed.ofAgents,
				Trainer: fed.trainer(s)})
		}, nil
	}
	program, err := fed.agentd(ctx)
	return func(ctx context.Context, s *settings.Agent) error { return fed.runProcess(ctx, program, s) }, err
}

// trainer returns the trainer of an agent, which slows local steps to the declared step time. The first
// Options.Attackers agents get a trainer that sends false updates.
func (fed *federation) trainer(s *settings.Agent) training.Trainer {
	paced := slow.Trainer{Trainer: training.LocalTrainer{}, StepTime: s.Compute.DeclaredStepTime}
	for _, other := range fed.agents[:fed.options.Attackers] {
		if other.ID == s.ID {
			lie, err := liar.Parse(fed.options.Attack)
			if err != nil {
				panic(err) // Validate has already parsed the attack, so this error cannot occur.
			}
			return liar.Trainer{Trainer: paced, Lie: lie}
		}
	}
	return paced
}

// runProcess runs one agent as a separate agentd process with its own configuration file.
func (fed *federation) runProcess(ctx context.Context, program string, s *settings.Agent) error {
	s.Log.Level = "warn"
	path, err := daemons.PutSettings(fed.Folder, s.ID, s)
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "run", "--config", path)
	cmd.Stderr = fed.options.Stderr
	p, err := launch.Start(cmd, launch.Options{})
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}

// agentd returns the path of the agentd program: the option --agentd, a file in the folder of this program, or a file
// in PATH. If none exists, agentd builds the program.
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
	fmt.Fprintln(fed.options.Stderr, "building agentd, which --processes requires")
	built := fed.Path("agentd")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", built,
		"github.com/fedmesh/fedmesh/cmd/agentd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("--processes requires the agentd program: copy it to the folder of fedlab or set "+
			"--agentd to its path (the build failed: %w\n%s)", err, out)
	}
	return built, nil
}

// edgesOf returns the function that computes the mixing graph. edgesOf replaces the graph from the coordinator's
// settings.
func (fed *federation) edgesOf(*coordinatorsettings.ConfigFile) (func([]round.MixingAgent) (meshplan.MixingGraph,
	error),
	error) {
	return fed.edges, nil
}
