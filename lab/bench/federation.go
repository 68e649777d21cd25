package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/internal/agentd"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/metrics/coordinatormetrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// fleet is a coordinator and its agents, all as the daemons run them, but that their local steps cost nothing: each
// agent waits at a gate until the next round may go on.
type fleet struct {
	name     wire.Federation
	site     *site
	agents   int
	drawn    int // agents of each round
	dim      int
	topics   mqtt.Topics
	meter    meter
	turn     atomic.Pointer[turn]
	dirs     []string
	failed   chan error
	programs sync.WaitGroup
	end      context.CancelFunc
}

// turn is one round: from when the agents pass the gate until all have the next model.
type turn struct {
	accepted, arrived *count
	gate              chan struct{}
}

func newTurn(n int) *turn { return &turn{newCount(n), newCount(n), make(chan struct{})} }

// connectFleet starts a federation whose coordinator keeps its state in dir, and whose agents keep theirs in memory:
// they would have disks of their own. It returns when all agents wait at the gate of the first round.
func connectFleet(ctx context.Context, o *Options, name wire.Federation, dir string, b *site, n, d int) (*fleet,
	error) {
	f := &fleet{name: name, site: b, agents: n, drawn: n, dim: d, meter: b.meter, failed: make(chan error, 1)}
	ctx, f.end = context.WithCancel(ctx)
	first := newTurn(n)
	f.turn.Store(first)
	c, agents, err := f.layOut(dir, o.Memory)
	if err != nil {
		return f, err
	}
	f.start(func() error {
		return coordinatord.Run(ctx, c, coordinatord.Options{Logger: slog.New(slog.DiscardHandler),
			Metrics: coordinatormetrics.New(metrics.NewRegistry("coordinator"), time.Now)})
	})
	f.startAgents(ctx, agents, gated{fleet: f})
	if err := first.arrived.wait(ctx, f.failed); err != nil {
		return f, fmt.Errorf("the first model: %w", err)
	}
	return f, nil
}

// startAgents runs agents in this process, whose local steps cost nothing.
func (f *fleet) startAgents(ctx context.Context, agents []*settings.Agent, as interface {
	agent.Trainer
	agent.Observer
}) {
	log, ofAgents := slog.New(slog.DiscardHandler), agentd.NewMetrics(metrics.NewRegistry("agentd"), "")
	for _, s := range agents {
		f.start(func() error {
			return agentd.Run(ctx, s,
				agentd.Options{Logger: log, Metrics: ofAgents, Trainer: as, Observer: as})
		})
	}
}

// start runs a program; the first one that fails fails the round.
func (f *fleet) start(run func() error) {
	f.programs.Go(func() {
		if err := run(); err != nil {
			select {
			case f.failed <- err:
			default:
			}
		}
	})
}

// layOut writes keys, passwords and data, and returns the settings of all.
func (f *fleet) layOut(dir, memory string) (*coordinatorsettings.File, []*settings.Agent, error) {
	topics, err := mqtt.NewTopics("", string(f.name))
	if err != nil {
		return nil, nil, err
	}
	f.topics = topics
	for _, in := range []string{dir, memory} {
		folder, err := os.MkdirTemp(in, "fedmesh-bench-")
		if err != nil {
			return nil, nil, err
		}
		f.dirs = append(f.dirs, folder)
	}
	own, shared := f.dirs[0], f.dirs[1]
	key, err := keys.Create(filepath.Join(own, "coordinator.key"))
	if err != nil {
		return nil, nil, err
	}
	csv := filepath.Join(shared, "data.csv")
	if err := rowsFile(csv, f.dim, 1); err != nil {
		return nil, nil, err
	}
	var agents []*settings.Agent
	var list []byte
	for k := range f.agents {
		s := settings.DefaultAgent()
		s.Federation, s.ID, s.StateDir = string(f.name), string(agentID(k)), filepath.Join(shared, string(agentID(k)))
		s.Identity = settings.AgentIdentity{KeyFile: s.StateDir + ".key", CoordinatorKey: keys.Format(keys.Public(key))}
		s.Data.CSV, s.Privacy.MinRows, s.Metrics = csv, 1, settings.AgentMetrics{}
		k, err := keys.Create(s.Identity.KeyFile)
		if err != nil {
			return nil, nil, err
		}
		list = fmt.Appendf(list, "%s %s\n", s.ID, keys.Format(keys.Public(k)))
		if err := f.reach(&s.Broker, wire.AgentID(s.ID)); err != nil {
			return nil, nil, err
		}
		agents = append(agents, &s)
	}
	c := f.leader()
	c.StateDir = filepath.Join(own, "state")
	c.Identity = coordinatorsettings.Identity{KeyFile: filepath.Join(own, "coordinator.key"),
		AgentsFile: filepath.Join(own, "agents.keys")}
	return c, agents, errors.Join(os.WriteFile(c.Identity.AgentsFile, list, 0o600),
		f.reach(&c.Broker, wire.CoordinatorID))
}

// hiddenUnits is how many hidden units a network of d numbers has, without biases: as many as its one output with the
// fewest inputs, where a layer may have 65,536 units. It is 0 if d does not allow for it.
func hiddenUnits(d int) int {
	for columns := 2; columns <= 256; columns++ {
		if d%columns == 0 && d/columns <= 1<<16 {
			return d / columns
		}
	}
	return 0
}

// features are the names of the inputs of a network of d numbers: each hidden unit has a weight for each, and one more.
func features(d int) (names []string) {
	for k := range d/hiddenUnits(d) - 1 {
		names = append(names, fmt.Sprintf("x%d", k))
	}
	return names
}

// leader is the coordinator's settings: as many agents in each round as are to be drawn, and rounds without end.
func (f *fleet) leader() *coordinatorsettings.File {
	s := coordinatorsettings.Default()
	s.Federation, s.Metrics = string(f.name), settings.Metrics{}
	t := &s.Task
	t.Name, t.Features, t.Target, t.MinRows, t.Standardize = "bench", features(f.dim), "y", 1, false
	t.Model = spec.Model{Kind: spec.ModelMLP, HiddenUnits: []int{hiddenUnits(f.dim)}, Activation: spec.ActivationTanh,
		Risk: spec.RiskSquared}
	t.StepSize = spec.StepSize{Constant: 0.01}
	t.Steps = settings.LocalStepLimits{Budget: time.Second, Min: 1, Max: 1}
	r := &s.Round
	r.Participants, r.Quorum, r.MaxAggregations, r.Deadline = f.drawn, f.drawn, 0, 24*time.Hour
	r.Gather = round.GatherConfig{TargetAgents: f.agents, Minimum: f.agents, WindowLength: time.Hour,
		HelloSpread: time.Second}
	s.Policy.KeepModels = 2
	return &s
}

// reach says how a party reaches the broker.
func (f *fleet) reach(b *settings.Broker, id wire.AgentID) error {
	b.URLs, b.Username = config.OneOrMore{f.site.url}, f.topics.ClientID(id)
	b.PasswordFile = filepath.Join(f.dirs[1], b.Username+".password")
	return os.WriteFile(b.PasswordFile, []byte(f.site.password(b.Username)), 0o600)
}

func (f *fleet) close() {
	f.end()
	f.programs.Wait()
	for _, dir := range f.dirs {
		_ = os.RemoveAll(dir)
	}
}

// round plays one round, from when the agents pass the gate until each has heard that its update is accepted, and all
// wait at the gate again, with the next model.
func (f *fleet) round(ctx context.Context) (s sample, err error) {
	next := newTurn(f.agents)
	gate := f.turn.Swap(next).gate
	used, begun := f.meter.now(), time.Now()
	close(gate)
	if err := next.accepted.wait(ctx, f.failed); err != nil {
		return s, fmt.Errorf("updates back: %w", err)
	}
	if err := next.arrived.wait(ctx, f.failed); err != nil {
		return s, fmt.Errorf("model out: %w", err)
	}
	return sample{time.Since(begun), f.meter.now() - used}, nil
}

// quick is an agent's trainer, whose local steps cost nothing, and its observer.
type quick struct{ agent.LocalTrainer }

// Block implements agent.Trainer.
func (quick) Block(context.Context, wire.RoundID, *task.CompiledTask[float32], task.LocalJob[float32]) (agent.Block,
	error) {
	return quickBlock{}, nil
}

// Observe implements agent.Observer.
func (quick) Observe(agent.Fact) {}

// ObserveRound implements agent.Observer.
func (quick) ObserveRound(round.AgentFact) {}

// quickBlock takes local steps at no cost.
type quickBlock struct{}

// Take implements agent.Block.
func (quickBlock) Take([]float32, uint64, uint64) error { return nil }

// OutcomeFrom implements agent.Block.
func (quickBlock) OutcomeFrom(_, x []float32) (task.LocalOutcome[float32], error) {
	return task.LocalOutcome[float32]{Vector: make([]float32, len(x)), Steps: 1, RiskBefore: 1, RiskAfter: 1}, nil
}

// gated is quick, and waits for the round to begin.
type gated struct {
	quick
	*fleet
}

// Block implements agent.Trainer.
func (g gated) Block(ctx context.Context, _ wire.RoundID, _ *task.CompiledTask[float32],
	_ task.LocalJob[float32]) (agent.Block, error) {
	return &gatedBlock{fleet: g.fleet, ctx: ctx}, nil
}

// ObserveRound implements agent.Observer.
func (g gated) ObserveRound(fact round.AgentFact) {
	if end, is := fact.(round.WorkEnded); is && end.Result == round.WorkAccepted {
		g.turn.Load().accepted.done()
	}
}

// gatedBlock takes local steps when the gate opens.
type gatedBlock struct {
	quickBlock
	fleet *fleet
	ctx   context.Context
}

// Take implements agent.Block.
func (b *gatedBlock) Take([]float32, uint64, uint64) error {
	t := b.fleet.turn.Load()
	t.arrived.done()
	select {
	case <-t.gate:
		return nil
	case <-b.ctx.Done():
		return task.ErrStopped
	}
}
