package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator/edges"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/internal/agentd"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/conservation"
	"github.com/fedmesh/fedmesh/lab/faults"
	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/lab/liar"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// RunMixing compares FedDec with FedAvg on the same data, model, participants and local steps. In FedDec, agents
// additionally mix their parameters with neighbours between server rounds.
func RunMixing(ctx context.Context, o Options) (_ *MixResult, err error) {
	began := time.Now()
	log, dir, err := o.prepare()
	if err != nil {
		return nil, err
	}
	// Hide warnings, because the user has requested faults.
	if o.faulty() {
		log = slog.New(slog.DiscardHandler)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := newScene(&o, dir)
	if err != nil {
		return nil, err
	}
	m := &mixing{options: o, scene: s, log: log, dir: dir, show: newMixDisplay(o)}
	r, err := m.run(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = errInterrupted
		}
		return nil, err
	}
	r.Seconds = time.Since(began).Seconds()
	if err := m.writeOut(r); err != nil {
		return nil, err
	}
	m.show.result(r)
	return r, nil
}

// mixing is the FedDec demonstration, which runs FedAvg and FedDec one after the other.
type mixing struct {
	options Options
	scene   *scene
	log     *slog.Logger
	dir     string
	show    mixDisplay
	alone   *course // results of the FedAvg run
	mixed   *course // results of the FedDec run
}

// course contains the results of one run of either FedAvg or FedDec.
type course struct {
	algorithm spec.Algorithm
	rounds    []point
	mesh      *meshplan.MixingGraph
	audit     *audit
	account   *account
	model     string       // hash of the final model
	revived   atomic.Int64 // number of restarts after an agent was killed
	uplink    atomic.Uint64
	site      atomic.Uint64
}

// point is the result of one round, with the total traffic up to the end of this round.
type point struct {
	Loss        float64
	R2          float64
	Uplink, D2D uint64  // total bytes sent to and from the coordinator (Uplink) and between neighbours (D2D)
	Consensus   float64 // consensus distance after the newest local step that all agents have reported
}

func (c *course) last() point { return c.rounds[len(c.rounds)-1] }

// run runs the FedAvg federation and then the FedDec federation, and returns the comparison.
func (m *mixing) run(ctx context.Context) (_ *MixResult, err error) {
	dirs := map[spec.Algorithm]string{spec.FedAvg: filepath.Join(m.dir, "fedavg"),
		spec.FedDec: filepath.Join(m.dir, "feddec")}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	site := m.options.SiteBroker
	// Start an embedded broker for the neighbours, because the user has not named one.
	if site == "" && m.options.Broker == "" {
		server, err := startBroker(&launch.Folder{Dir: dirs[spec.FedDec]}, m.log)
		if err != nil {
			return nil, err
		}
		defer server.Close()
		site = server.URL()
	}
	m.show.start(m, site)
	if m.alone, err = m.federate(ctx, spec.FedAvg, "", dirs[spec.FedAvg]); err != nil {
		return nil, fmt.Errorf("FedAvg: %w", err)
	}
	m.show.alone(m)
	if m.mixed, err = m.federate(ctx, spec.FedDec, site, dirs[spec.FedDec]); err != nil {
		return nil, fmt.Errorf("FedDec: %w", err)
	}
	return newMixResult(m), nil
}

// federate runs one federation to its end and returns the results. Neighbours exchange messages over the broker at URL
// site, or over the coordinator's broker if site is empty.
func (m *mixing) federate(ctx context.Context, algorithm spec.Algorithm, site, dir string) (_ *course, err error) {
	fed, err := newFederation(m.options, m.scene.files, apart{&m.options, m.scene, algorithm, site}, dir, m.log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fed.cleanUp(ctx)) }()
	if err := fed.await(ctx); err != nil {
		return nil, err
	}
	c := &course{algorithm: algorithm, audit: newAudit(len(fed.agents))}
	if algorithm == spec.FedDec {
		maker, err := edges.New(m.scene.mesh.Edges, m.scene.mesh.EdgeRadius, "", m.scene.mesh.Weights)
		if err != nil {
			return nil, err
		}
		fed.edges = maker.MakeMesh // Use a fixed mixing graph, so that agents do not search for neighbours.
		c.audit.scheduleKills(fed.ids(), m.options.Kill, m.scene.rounds, uint64(m.scene.task.Steps.Max), m.options.Seed)
	}
	fed.host = func(ctx context.Context, s *settings.Agent) error { return m.host(ctx, fed, c, s) }
	w := newWatcher(&recording{mixing: m, course: c}, m.scene.rounds)
	w.rough = m.options.Kill > 0 && algorithm == spec.FedDec
	if err := fed.run(ctx, w); err != nil {
		return nil, err
	}
	c.mesh = w.now.Mesh
	if c.account, err = c.audit.account(uint64(m.scene.task.Steps.Max)); err != nil {
		return nil, err
	}
	c.model, err = modelHash(fed.coordinator.StateDir)
	return c, err
}

func (fed *federation) ids() []wire.AgentID {
	ids := make([]wire.AgentID, len(fed.agents))
	for i, a := range fed.agents {
		ids[i] = wire.AgentID(a.ID)
	}
	return ids
}

// rest is the pause between killing an agent and restarting it.
const rest = 300 * time.Millisecond

// host runs an agent and restarts it each time it was killed.
func (m *mixing) host(ctx context.Context, fed *federation, c *course, s *settings.Agent) error {
	for {
		l := &life{Trainer: m.trainer(fed, c, s), course: c, id: wire.AgentID(s.ID), topics: fed.topics,
			options: &m.options, rand: rand.New(rand.NewPCG(m.options.Seed, task.AgentRandomKey(wire.AgentID(s.ID))))}
		alive, end := context.WithCancel(ctx)
		l.end = end
		c.audit.onKill(wire.AgentID(s.ID), l.kill)
		err := agentd.Run(alive, s, agentd.Options{
			Logger: fed.log, Metrics: fed.ofAgents, ObserveTraffic: c.count, WrapConnection: l.wrap, Trainer: l,
		})
		end()
		if !l.dead.Load() {
			return err
		}
		c.revived.Add(1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rest):
		}
	}
}

// trainer returns the trainer of an agent. If Options.Lie is set, the trainer of the fifth agent sends false snapshots
// to its neighbours.
func (m *mixing) trainer(fed *federation, c *course, s *settings.Agent) training.Trainer {
	if m.options.Lie == "" || c.algorithm != spec.FedDec || s.ID != fed.agents[4].ID {
		return training.LocalTrainer{}
	}
	lie, err := liar.Parse(m.options.Lie)
	if err != nil {
		panic(err) // Validate has already parsed the lie, so this error cannot occur.
	}
	return liar.Trainer{Trainer: training.LocalTrainer{}, Lie: lie}
}

// count adds the topic and payload size of a message to the traffic of the run. It counts messages between neighbours
// separately.
func (c *course) count(x mqtt.ObservedMessage, kind mqtt.TopicKind) {
	if x.IsDropped {
		return
	}
	sum := &c.uplink
	if kind == mqtt.KindPeer {
		sum = &c.site
	}
	sum.Add(uint64(x.PayloadBytes + len(x.Topic)))
}

// life is one lifetime of an agent: from its start until it ends or is killed.
type life struct {
	training.Trainer
	*course
	id      wire.AgentID
	options *Options
	topics  mqtt.Topics
	end     context.CancelFunc
	dead    atomic.Bool
	rand    *rand.Rand // generates the seeds for the simulated faults of each connection

	mu    sync.Mutex
	conns []*faults.Conn
}

// wrap adds the configured faults to a connection of the agent. Only messages between neighbours are affected.
func (l *life) wrap(conn mqtt.Conn) mqtt.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := faults.Wrap(conn, faults.Options{
		Loss: l.options.Loss, Duplicates: l.options.Duplicates, Delay: l.options.Delay,
		Rand: rand.New(rand.NewPCG(l.rand.Uint64(), 0)),
		IsExemptTopic: func(topic string) bool {
			// Ignore the error, because an unknown topic has the kind KindUnknown.
			kind, _, _, _, _ := l.topics.ParseTopic(topic)
			return kind != mqtt.KindPeer
		},
	})
	l.conns = append(l.conns, c)
	return c
}

// kill simulates a crash of the agent: it blocks all connections, so that no will or goodbye is sent, and then stops
// the agent.
func (l *life) kill() {
	l.dead.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Cut()
	}
	l.end()
}

// NewBlock implements training.Trainer. The returned block reports its parameters to the audit.
func (l *life) NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
	j task.LocalJob[float32]) (training.LocalStepBlock,
	error) {
	b, err := l.Trainer.NewBlock(ctx, r, p, j)
	return &audited{LocalStepBlock: b, life: l, round: r, trace: conservation.New[float32](l.id)}, err
}

// audited is a training block that reports the agent's parameters to the audit after each local step and the mixing
// that follows it. In this demonstration, mixing follows every local step.
type audited struct {
	training.LocalStepBlock
	life  *life
	round wire.RoundID
	taken uint64
	trace *conservation.Trace[float32]
}

// TakeSteps implements training.LocalStepBlock. Before it takes new steps, it reports the parameters x, which mixing
// has changed since the last step.
func (b *audited) TakeSteps(x []float32, first, last uint64) error {
	b.show(x)
	b.taken = last
	return b.LocalStepBlock.TakeSteps(x, first, last)
}

// OutcomeFromBase implements training.LocalStepBlock. OutcomeFromBase reports the final parameters to the audit.
func (b *audited) OutcomeFromBase(base, x []float32) (task.LocalOutcome[float32], error) {
	b.show(x)
	return b.LocalStepBlock.OutcomeFromBase(base, x)
}

func (b *audited) show(x []float32) {
	if b.taken > 0 {
		b.life.audit.mixed(b.life.id, b.round, b.taken, x)
	}
}

// Trace implements training.TracedBlock. It returns the trace that records all changes by mixing.
func (b *audited) Trace() d2d.ParameterTrace[float32] { return b.trace }

// Ended implements training.TracedBlock. It stores the sums of the block unless the agent was killed.
func (b *audited) Ended(stats d2d.MixingStats) {
	if !b.life.dead.Load() {
		b.life.audit.ended(b.round, endedBlock{b.trace.Sums(), stats})
	}
}

var _ training.TracedBlock = (*audited)(nil)
