package world

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/edges"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/lab/conservation"
	"github.com/fedmesh/fedmesh/lab/slow"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

const federation = "plant"

// stateDir is the state folder on a party's disk.
const stateDir = "state"

// party is the coordinator or an agent. It exists for the whole run, while its process may restart.
type party struct {
	w       *World
	number  int // number of the party: the constant Coordinator, or the index of the agent
	id      wire.AgentID
	key     ed25519.PrivateKey
	disk    *disk
	others  []*disk // disks of the coordinator's other machines; the first of them is the next machine
	run     func(ctx context.Context, l *processLife) error
	rng     *rand.Rand
	life    *processLife       // current process; nil while no process is running
	dying   []*processLife     // killed processes whose jobs have not ended yet
	cancel  context.CancelFunc // shuts the process down cleanly
	conn    *conn
	inboxes map[<-chan mqtt.Event]*inbox

	lies  map[Lie]lie    // possible protocol violations; nil for an honest party
	lying map[Lie]int    // number of active faults for each protocol violation
	kept  []mqtt.Message // messages that were sent and that a dishonest party may send again

	stoppedUntil time.Time // end of the current fault of the kind Stopped
	cutOff       int       // number of active faults that keep the party from the broker
	hadTrouble   bool      // true if the party's disk was full at some time
}

func keyOf(id wire.AgentID) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(id))
	return ed25519.NewKeyFromSeed(seed[:])
}

func (p *party) public() ed25519.PublicKey { return p.key.Public().(ed25519.PublicKey) }

// signatures replaces Ed25519, which would more than double the duration of a run. A signature is a digest that
// includes the signer's public key. Therefore signatures by other keys are detected. The type also counts the
// signatures.
type signatures struct{ w *World }

// Sign implements wire.SignatureScheme.
func (s signatures) Sign(key ed25519.PrivateKey, message []byte) []byte {
	s.w.check.signed++
	return digest(key.Public().(ed25519.PublicKey), message)
}

// Verify implements wire.SignatureScheme.
func (s signatures) Verify(key ed25519.PublicKey, message, signature []byte) bool {
	s.w.check.verified++
	return bytes.Equal(digest(key, message), signature)
}

func digest(key ed25519.PublicKey, message []byte) []byte {
	h := sha256.New()
	_, _ = h.Write(key)
	_, _ = h.Write(message)
	return h.Sum(make([]byte, ed25519.SignatureSize-sha256.Size, ed25519.SignatureSize))
}

// populate creates the parties and starts them.
func (w *World) populate() {
	c := w.newParty(Coordinator, wire.CoordinatorID)
	c.run = c.coordinate
	for k := range w.plan.Agents {
		a := w.newParty(k, agentID(k))
		a.run = a.takePart
	}
	for i, p := range w.parties {
		// The last agent joins late, which changes the column moments (mean and variance of each column).
		if w.plan.StandardizeAt > 0 && i == w.plan.Agents {
			p.startAfter(w.between(18*time.Second, 26*time.Second))
			continue
		}
		p.startAfter(w.between(time.Millisecond, time.Second))
	}
}

func agentID(k int) wire.AgentID { return wire.AgentID(fmt.Sprintf("a%d", k)) }

func (w *World) newParty(number int, id wire.AgentID) *party {
	p := &party{w: w, number: number, id: id, key: keyOf(id), inboxes: map[<-chan mqtt.Event]*inbox{},
		lying: map[Lie]int{},
		rng:   rand.New(rand.NewPCG(w.plan.Seed, uint64(number)+10))}
	p.disk = w.newDisk(p, "machine 1")
	for k := range w.plan.Machines - 1 {
		if number == Coordinator {
			p.others = append(p.others, w.newDisk(p, fmt.Sprint("machine ", k+2)))
		}
	}
	if slices.ContainsFunc(w.plan.Faults, func(f Fault) bool { return f.Kind == Lying && f.Party == number }) {
		p.lies = liesOf(number)
	}
	w.parties = append(w.parties, p)
	return p
}

// newDisk creates a disk for a machine of a party.
func (w *World) newDisk(p *party, name string) *disk {
	d := &disk{w: w, name: name, root: newFolder(), wrote: func(path string) { w.check.observeFileWrite(p, path) }}
	d.root.apply(change{set: stateDir, node: newFolder()})
	d.root.sync()
	if w.bugs.Forget != nil {
		d.forget = func(op, path string) bool { return w.bugs.Forget(p.number, op, path) }
	}
	if w.bugs.Late != nil {
		d.isLate = func(path string) bool { return w.bugs.Late(p.number, path) }
	}
	return d
}

// startAfter starts a process after the duration d, unless a process is already running at that time.
func (p *party) startAfter(d time.Duration) {
	p.w.after(d, func() {
		if p.life == nil && !p.w.now.Before(p.stoppedUntil) {
			p.start()
		}
	})
}

func (p *party) start() {
	l := &processLife{w: p.w, p: p}
	p.turn()
	p.life, p.disk.cutAt = l, 0
	p.w.note("%s started", p.id)
	p.w.check.started(p)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	l.run(func() { p.exited(l, p.run(ctx, l)) })
}

// exited handles the end of a process. exited schedules a restart, as a service manager does.
func (p *party) exited(l *processLife, err error) {
	p.w.note("%s exited: %v", p.id, err)
	l.dead = true
	if p.life != l {
		return
	}
	p.life, p.conn = nil, nil
	p.dying = append(p.dying, l)
	p.w.after(0, p.reap)
	if errors.As(err, new(*runs.StateError)) {
		p.w.fail("the coordinator requires an operator: %v", err)
	}
	wait := 10 * time.Second
	if left := p.stoppedUntil.Sub(p.w.now); left > wait {
		wait = left
	}
	p.startAfter(wait)
}

// kill ends the process. Its remaining operations have no effect.
func (p *party) kill() {
	l := p.life
	if l == nil {
		return
	}
	l.dead = true
	if c := p.conn; c != nil && c.link != nil { // the broker detects the loss of the client later
		link := c.link
		p.w.after(p.w.between(time.Millisecond, keepAlive), func() {
			link.open = false
			p.w.broker.drop(c.id, link)
		})
	}
	p.life, p.conn, p.cancel = nil, nil, nil
	p.dying = append(p.dying, l)
}

// reap ends the jobs of killed processes.
func (p *party) reap() {
	for _, l := range p.dying {
		for _, j := range l.jobs {
			j.stop()
		}
		l.jobs = nil
	}
	p.dying = nil
}

func topics() mqtt.Topics {
	t, err := mqtt.NewTopics("", federation)
	if err != nil {
		panic(err)
	}
	return t
}

// coordinate runs the coordinator's process in the same way as package internal/coordinatord.
func (p *party) coordinate(ctx context.Context, l *processLife) error {
	if p.w.plan.Machines > 1 {
		return p.coordinateInTurn(ctx, l)
	}
	conn := l.connect(topics().ClientID(wire.CoordinatorID), nil)
	c, err := coordinator.New(p.w.coordinatorConfig(p, l), conn)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return c.Run(ctx)
}

func (w *World) coordinatorConfig(p *party, l *processLife) coordinator.Config {
	r, t := w.plan.configure()
	keys := map[wire.AgentID]ed25519.PublicKey{}
	for _, a := range w.parties[1:] {
		keys[a.id] = a.public()
	}
	cfg := coordinator.Config{
		Federation: federation, Key: p.key, Agents: enrolled.NewListFromKeys(keys), Topics: topics(), Round: r,
		Task: t, Standardize: w.plan.Standardize, StateDir: stateDir, Disk: store.Disk{FS: handle{p.disk, l}},
		Runtime: l, Signatures: signatures{w}, KeepModels: 2, KeepRuns: 2, MaxBufferedUpdateBytes: 1 << 20,
		Observer: observer(func(event observe.Event) { w.check.observeEvent(p, event) }),
		Logger:   slog.New(slog.DiscardHandler), Rand: rand.New(rand.NewPCG(p.rng.Uint64(), 0)),
		FillRandom: func(b []byte) {
			fill(b, p.rng)
			w.secrets = append(w.secrets, wire.SealSecret(b))
		},
	}
	if at := w.plan.StandardizeAt; at > 0 {
		cfg.RestandardizeVersions = []int{at}
	}
	if r.Algorithm == spec.FedDec {
		cfg.MakeEdges = (&edges.MeshMaker{EdgeSource: spec.EdgesRing, WeightRule: spec.EdgeWeightsMetropolis}).MakeMesh
	}
	if w.bugs.Configure != nil {
		w.bugs.Configure(&cfg)
	}
	return cfg
}

// agent returns the party of the agent with the given id.
func (w *World) agent(id wire.AgentID) *party {
	return w.parties[1+slices.IndexFunc(w.parties[1:], func(p *party) bool { return p.id == id })]
}

// takePart runs an agent's process in the same way as package internal/agentd.
func (p *party) takePart(ctx context.Context, l *processLife) error {
	disk := store.Disk{FS: handle{p.disk, l}}
	boot, lost, err := disk.NextBootEpoch(stateDir)
	if err != nil {
		return err
	}
	cfg := p.w.agentConfig(p, l, disk)
	cfg.BootEpoch, cfg.Presence.MinLostCounterEpoch = wire.Epoch(boot), wire.Epoch(boot)+1
	if lost != nil {
		cfg.Presence.MinLostCounterEpoch = wire.Epoch(boot)
	}
	for {
		a, err := agent.New(cfg, func(will func() mqtt.Message) (mqtt.Conn, error) {
			return l.connect(cfg.Topics.ClientID(p.id), will), nil
		})
		if err != nil {
			return err
		}
		err = a.Run(ctx)
		behind := (*presence.BootCounterLostError)(nil)
		if !errors.As(err, &behind) {
			return err
		}
		next, err := disk.SaveBootEpochAfter(stateDir, uint64(behind.Epoch))
		if err != nil {
			return err
		}
		cfg.BootEpoch, cfg.Presence.MinLostCounterEpoch = wire.Epoch(next), 0
	}
}

func (w *World) agentConfig(p *party, l *processLife, disk store.Disk) agent.Config {
	var predictions *predict.Config
	if w.plan.Predicts {
		predictions = &predict.Config{MaxKeptModels: 2}
	}
	heldOut := 0.0
	if w.plan.Evaluates > 0 {
		heldOut = heldShare
	}
	return agent.Config{
		Federation: federation, ID: p.id, Identity: identity.Config{Key: p.key, Coordinator: w.parties[0].public()},
		Topics: topics(), TaskData: taskdata.Config{HeldOutShare: heldOut, MinRows: 3,
			Source: data.MemorySource(w.plan.rowsOf(p.number).load)},
		StateDir: stateDir, Disk: disk, Runtime: l, SignatureScheme: signatures{w}, Now: l.Now,
		MaxBlobBytes: 1 << 20, Training: training.Config{DeclaredStepTime: stepTime(p.number),
			Trainer: trainer{slow.Trainer{Trainer: training.LocalTrainer{}, StepTime: stepTime(p.number), Runtime: l},
				l}},
		Observer: observer(func(event observe.Event) { w.check.observeEvent(p, event) }),
		Logger:   slog.New(slog.DiscardHandler), Rand: rand.New(rand.NewPCG(p.rng.Uint64(), 0)),
		Mesh:    &mesh.Config{FillRandom: func(b []byte) { fill(b, p.rng) }},
		Predict: predictions,
	}
}

// fill fills b with random key material.
func fill(b []byte, rng *rand.Rand) {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

// observer is a function that is called with each event of a program.
type observer func(event observe.Event)

func (o observer) Observe(event observe.Event) { o(event) }

// rows generates the data of an agent.
type rows struct {
	seed    uint64
	opposed bool
	labels  learner.LabelSet // set of target values that the loss of the task accepts
}

// rowsOf returns the data of an agent. The targets are valid for the loss of the plan's task.
func (p *Plan) rowsOf(agent int) rows {
	_, t := p.configure()
	model := learner.Architecture{Outputs: int(t.Model.Outputs), Risk: t.Model.Risk}
	return rows{uint64(agent), p.Opposed, model.LabelSet()}
}

// validTarget maps a number y to a target that is in the given set. The map is monotone. If every number is a valid
// target, it returns y.
func validTarget(labels learner.LabelSet, y float64) float64 {
	unit := 0.5 + 0.5*y/(1+math.Abs(y)) // between 0 and 1
	switch {
	case labels == (learner.LabelSet{}):
		return y
	case labels.ClassCount > 0:
		return min(math.Floor(unit*float64(labels.ClassCount)), float64(labels.ClassCount-1))
	case labels.IsBinary:
		return 2*math.Round(unit) - 1 // the loss expects the labels −1 and 1
	case labels.Contains(unit):
		return unit
	}
	return math.Round(unit)
}

func (r rows) load([]string, string) (*learner.Samples[float32], error) {
	huge := 0.0
	if r.opposed && r.seed < 2 {
		huge = 1e10 * (2*float64(r.seed) - 1)
		r.seed = 0
	}
	rng := rand.New(rand.NewPCG(r.seed, 7))
	n := 20 + 5*int(r.seed)
	x, y := make([]float32, 0, 3*n), make([]float32, 0, n)
	for range n {
		a, b, c := rng.NormFloat64(), rng.NormFloat64()+0.1*float64(r.seed), rng.Float64()
		x = append(x, float32(a), float32(b), float32(c))
		y = append(y, float32(validTarget(r.labels, huge+1-1.5*a-0.1*b+2*c+0.1*rng.NormFloat64())))
	}
	return learner.NewSamples(3, x, y), nil
}

// stepTime returns the duration of a local step of agent k.
func stepTime(k int) time.Duration { return time.Duration(300+200*k) * time.Millisecond }

// trainer wraps a Trainer. It checks that mixing does not change the sum of the parameters in the trainer's blocks.
type trainer struct {
	training.Trainer
	life *processLife
}

// NewBlock implements training.Trainer.
func (t trainer) NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
	j task.LocalJob[float32]) (training.LocalStepBlock,
	error) {
	b, err := t.Trainer.NewBlock(ctx, r, p, j)
	if t.life == nil { // some tests use the trainer without a world
		return b, err
	}
	return block{b, t.life, r, conservation.New[float32](t.life.p.id)}, err
}

// block is a block of local steps that records all changes that mixing makes to the parameters.
type block struct {
	training.LocalStepBlock
	life  *processLife
	round wire.RoundID
	trace *conservation.Trace[float32]
}

var _ training.TracedBlock = block{}

// OutcomeFromBase implements training.LocalStepBlock.
func (b block) OutcomeFromBase(base, x []float32) (task.LocalOutcome[float32], error) {
	out, err := b.LocalStepBlock.OutcomeFromBase(base, x)
	if err == nil {
		b.life.w.check.recordChange(b.life.p.id, out.UpdateVector)
	}
	return out, err
}

// Trace implements training.TracedBlock.
func (b block) Trace() d2d.ParameterTrace[float32] { return b.trace }

// Ended implements training.TracedBlock.
func (b block) Ended(d2d.MixingStats) { b.life.w.check.mixed(b.life, b.round, b.trace.Sums()) }

// observeSentMessage checks a message before it is sent. It returns false if a deliberate bug drops the message.
func (p *party) observeSentMessage(m mqtt.Message) bool {
	if p.w.bugs.Say != nil {
		open := m
		if e, err := p.w.reveal(m); err == nil {
			open.Payload = e.Bytes()
		}
		if !p.w.bugs.Say(p.number, open) {
			return false
		}
	}
	p.w.check.observeMessage(p, m)
	return true
}
