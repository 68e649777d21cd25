package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/agentd"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/lab/launch/daemons"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/metrics/coordinatormetrics"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// fleet is a coordinator with its agents, which run the code of the real daemons. The agents do no training: each agent
// waits at a gate until the benchmark starts the next round.
type fleet struct {
	name    wire.FederationName
	site    *site
	agents  int
	drawn   int // number of agents that are drawn (selected as participants) in each round
	dim     int
	meter   meter
	turn    atomic.Pointer[turn]
	folder  *launch.Folder // folder of all files except the coordinator's state
	dirs    []string       // folders to remove at the end
	running *launch.Group
}

// turn measures one round, from the opening of the gate until all agents have received the next model.
type turn struct {
	accepted, arrived *count
	gate              chan struct{}
}

func newTurn(n int) *turn { return &turn{newCount(n), newCount(n), make(chan struct{})} }

// connectFleet starts a federation. It returns when all agents wait at the gate of the first round. The coordinator's
// state is in dir. The agents' states are in memory, because real agents have their own disks.
func connectFleet(ctx context.Context, o *Options, name wire.FederationName, dir string, b *site, n, d int) (*fleet,
	error) {
	f := &fleet{name: name, site: b, agents: n, drawn: n, dim: d, meter: b.meter, running: launch.NewGroup(ctx)}
	first := newTurn(n)
	f.turn.Store(first)
	c, agents, err := f.layOut(dir, o.Memory)
	if err != nil {
		return f, err
	}
	daemons.RunCoordinator(f.running, c, coordinatord.Options{Logger: slog.New(slog.DiscardHandler),
		Metrics: coordinatormetrics.New(metrics.NewRegistry("coordinator"), time.Now)})
	runAgents(f.running, agents, gated{fleet: f})
	if err := first.arrived.wait(f.running.Context(), nil); err != nil {
		return f, fmt.Errorf("first model not received by all agents: %w", err)
	}
	return f, nil
}

// runAgents runs agents in this process. The parameter as is their trainer and observer. Its local steps take no time.
func runAgents(g *launch.Group, agents []settings.Agent, as interface {
	training.Trainer
	observe.Observer
}) {
	log, ofAgents := slog.New(slog.DiscardHandler), agentd.NewMetrics(metrics.NewRegistry("agentd"), "")
	for i := range agents {
		daemons.RunAgent(g, &agents[i], agentd.Options{Logger: log, Metrics: ofAgents, Trainer: as, Observer: as})
	}
}

// layOut writes keys, passwords and data to a folder in memory, and returns the settings of the coordinator and the
// agents. The coordinator's state is in dir.
func (f *fleet) layOut(dir, memory string) (*coordinatorsettings.ConfigFile, []settings.Agent, error) {
	for _, in := range []string{dir, memory} {
		folder, err := os.MkdirTemp(in, "fedmesh-bench-")
		if err != nil {
			return nil, nil, err
		}
		f.dirs = append(f.dirs, folder)
	}
	var err error
	if f.folder, err = launch.NewFolder(f.dirs[1], string(f.name)); err != nil {
		return nil, nil, err
	}
	csv := f.folder.Path("data.csv")
	if err := rowsFile(csv, f.dim, 1); err != nil {
		return nil, nil, err
	}
	var agents []settings.Agent
	for k := range f.agents {
		s := settings.DefaultAgent()
		s.ID, s.Data.CSVPath, s.Privacy.MinRowsToParticipate, s.Metrics = string(agentID(k)), csv, 1,
			settings.AgentMetrics{}
		agents = append(agents, s)
	}
	c := f.leader()
	err = daemons.Place(f.folder, c, agents, f.reach)
	c.StateDir = filepath.Join(f.dirs[0], "state")
	return c, agents, err
}

// hiddenUnits returns the largest number of hidden units, up to 65,536, of a network with d parameters, one output and
// no biases. hiddenUnits returns 0 if no such network exists.
func hiddenUnits(d int) int {
	for columns := 2; columns <= 256; columns++ {
		if d%columns == 0 && d/columns <= 1<<16 {
			return d / columns
		}
	}
	return 0
}

// features returns the input names of a network with d parameters. Each hidden unit has one weight per input and one
// output weight.
func features(d int) (names []string) {
	for k := range d/hiddenUnits(d) - 1 {
		names = append(names, fmt.Sprintf("x%d", k))
	}
	return names
}

// leader returns the settings of a coordinator that draws f.drawn participants per round and runs rounds until it is
// stopped.
func (f *fleet) leader() *coordinatorsettings.ConfigFile {
	s := coordinatorsettings.Default()
	s.Metrics, s.Console = settings.Metrics{}, coordinatorsettings.Console{}
	t := &s.Task
	t.Name, t.Features, t.Target, t.MinRows, t.Standardize = "bench", features(f.dim), "y", 1, false
	t.Model = spec.Model{Kind: spec.ModelMLP, HiddenUnits: []int{hiddenUnits(f.dim)}, Activation: spec.ActivationTanh,
		Risk: spec.LossSquared}
	t.StepSize = spec.StepSize{Constant: 0.01}
	t.Steps = settings.LocalStepLimits{TimeBudget: time.Second, Min: 1, Max: 1}
	r := &s.Round
	r.Participants, r.Quorum, r.MaxAggregations, r.RoundTimeout = f.drawn, f.drawn, 0, 24*time.Hour
	r.Gather = round.GatherConfig{TargetAgents: f.agents, MinAgents: f.agents, WindowLength: time.Hour,
		HelloSpread: time.Second}
	s.Policy.KeptModelsPerRun = 2
	return &s
}

// reach sets the broker URL, the username and the password in the settings of an agent or the coordinator.
func (f *fleet) reach(b *settings.Broker, id wire.AgentID) error {
	b.URLs, b.Username = config.OneOrMore{f.site.url}, string(f.name)+"-"+string(id)
	b.PasswordFile = f.folder.PasswordFile(b.Username)
	return f.folder.PutPassword(b.Username, f.site.password(b.Username))
}

func (f *fleet) close() {
	if f.running != nil {
		f.running.Stop()
	}
	for _, dir := range f.dirs {
		_ = os.RemoveAll(dir)
	}
}

// round opens the gate and measures one round. The round ends when every update is accepted and all agents wait at the
// gate with the next model.
func (f *fleet) round(context.Context) (s sample, err error) {
	ctx := f.running.Context()
	next := newTurn(f.agents)
	gate := f.turn.Swap(next).gate
	used, begun := f.meter.now(), time.Now()
	close(gate)
	if err := next.accepted.wait(ctx, nil); err != nil {
		return s, fmt.Errorf("updates not accepted: %w", err)
	}
	if err := next.arrived.wait(ctx, nil); err != nil {
		return s, fmt.Errorf("model not received by all agents: %w", err)
	}
	return sample{time.Since(begun), f.meter.now() - used}, nil
}

// quick is a trainer and observer of an agent. Its local steps take no time.
type quick struct{ training.LocalTrainer }

// NewBlock implements training.Trainer.
func (quick) NewBlock(context.Context, wire.RoundID, *task.CompiledTask[float32],
	task.LocalJob[float32]) (training.LocalStepBlock,
	error) {
	return quickBlock{}, nil
}

// Observe implements observe.Observer.
func (quick) Observe(observe.Event) {}

// quickBlock is a block whose local steps take no time.
type quickBlock struct{}

// TakeSteps implements training.LocalStepBlock.
func (quickBlock) TakeSteps([]float32, uint64, uint64) error { return nil }

// OutcomeFromBase implements training.LocalStepBlock.
func (quickBlock) OutcomeFromBase(_, x []float32) (task.LocalOutcome[float32], error) {
	return task.LocalOutcome[float32]{UpdateVector: make([]float32, len(x)), StepsTaken: 1, RiskBefore: 1,
		RiskAfter: 1}, nil
}

// gated is a trainer like quick, except that each block waits for the gate of the round.
type gated struct {
	quick
	*fleet
}

// NewBlock implements training.Trainer.
func (g gated) NewBlock(ctx context.Context, _ wire.RoundID, _ *task.CompiledTask[float32],
	_ task.LocalJob[float32]) (training.LocalStepBlock, error) {
	return &gatedBlock{fleet: g.fleet, ctx: ctx}, nil
}

// Observe implements observe.Observer.
func (g gated) Observe(event observe.Event) {
	if end, is := event.(agentround.WorkEnded); is && end.Result == agentround.WorkAccepted {
		g.turn.Load().accepted.done()
	}
}

// gatedBlock is a block whose local steps finish when the gate opens.
type gatedBlock struct {
	quickBlock
	fleet *fleet
	ctx   context.Context
}

// TakeSteps implements training.LocalStepBlock.
func (b *gatedBlock) TakeSteps([]float32, uint64, uint64) error {
	t := b.fleet.turn.Load()
	t.arrived.done()
	select {
	case <-t.gate:
		return nil
	case <-b.ctx.Done():
		return task.ErrStoppedMidBlock
	}
}
