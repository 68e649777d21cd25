package coordinator_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/engine"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/lab/liar"
	"github.com/fedmesh/fedmesh/lab/slow"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

func TestMain(m *testing.M) {
	hosts.UseMemoryTempDir()
	goleak.VerifyTestMain(m)
}

const fedName = "plant"

// table is data as text in CSV format.
type table string

func (t table) Load(features []string, target string) (*learner.Samples[float32], error) {
	return sources.ReadCSV[float32](strings.NewReader(string(t)), "data.csv", features, target, sources.RowFilter{})
}

func (t table) source() data.Source { return data.MemorySource(t.Load) }

// held sets the held-out data.
func (f *federation) held(t table) { f.tested, f.cfg.HeldOutSource = t, t.source() }

// rowsOf returns n rows of three features on different scales, and a target.
func rowsOf(seed uint64, n int) table {
	rng := rand.New(rand.NewPCG(seed, 7))
	b := []byte("warm,wet,wind,power\n")
	for range n {
		warm, wet, wind := 15+6*rng.NormFloat64()+float64(seed), 60+15*rng.NormFloat64(), 5*rng.Float64()
		b = fmt.Appendf(b, "%.3f,%.3f,%.3f,%.3f\n", warm, wet, wind, 450-1.5*warm-0.1*wet+2*wind+0.5*rng.NormFloat64())
	}
	return table(b)
}

// classes returns the table with a class in place of the target: +1 if the target exceeds 424, else −1.
func (t table) classes() table {
	lines := strings.Split(strings.TrimSpace(string(t)), "\n")
	for i, line := range lines[1:] {
		comma := strings.LastIndexByte(line, ',')
		class := "-1"
		if line[comma+1:] > "424" {
			class = "1"
		}
		lines[i+1] = line[:comma+1] + class
	}
	return table(strings.Join(lines, "\n"))
}

// happening is an event and the process that reported it.
type happening struct {
	who   wire.AgentID
	at    time.Time
	event any
}

// federation is a coordinator and its agents, connected to one broker. Each process can be killed and restarted with
// the contents that its disk had when it was killed.
type federation struct {
	t      *testing.T
	broker *memory.Broker
	topics mqtt.Topics
	cfg    coordinator.Config
	coord  *process
	host   *coordinator.Coordinator // coordinator in its current process
	agents []*process
	tested table // rows held out for the coordinator
	// connect connects a client to the broker.
	connect func(clientID string, will func() mqtt.Message) mqtt.Conn

	news chan struct{}
	keys map[wire.AgentID]ed25519.PublicKey // public keys in the list of agents
	mu   sync.Mutex
	log  []happening
}

// observer is the observer of a coordinator.
type observer = testkit.Observer

// process is a coordinator or an agent across restarts.
type process struct {
	f    *federation
	id   wire.AgentID
	key  ed25519.PrivateKey
	dir  string
	data table
	lie  liar.Lie     // manipulation by a dishonest agent
	file data.Config  // configuration of an agent's data, if set
	cfg  agent.Config // agent settings of a test
	boot wire.Epoch

	takeOver, newRun bool                 // start options of a coordinator
	engine           *engine.FakeKVServer // store for replicated coordinators
	lives            int
	sendsNothing     bool // true if an agent joins but never sends its update

	// moment is called on the owner goroutine with each event and each sent message, at which the process can be
	// killed.
	moment  func(any)
	life    *life
	started int
}

// life is one execution of a process, from a start to the next stop or kill.
type life struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	dead   bool // true after a kill: later output is ignored
}

// newFederation returns a federation of n agents that all participate in each round and train a standardised linear
// model. Tests may modify it before calling start.
func newFederation(t *testing.T, n int, o memory.Options) *federation {
	f := &federation{t: t, broker: memory.New(o), topics: hosts.TopicsOf(t, fedName), news: make(chan struct{}, 1),
		keys: map[wire.AgentID]ed25519.PublicKey{}}
	f.connect = func(clientID string, will func() mqtt.Message) mqtt.Conn {
		if will == nil {
			return f.broker.Connect(clientID, nil)
		}
		w := will()
		return f.broker.Connect(clientID, &w)
	}
	f.coord = &process{f: f, id: wire.CoordinatorID, key: hosts.TestKey(wire.CoordinatorID), dir: t.TempDir()}
	f.cfg = hosts.Coordinator(t, fedName, nil)
	f.cfg.Round, f.cfg.Standardize, f.cfg.FeatureClipDeviations = round.DefaultConfig(), true, 5
	f.cfg.Task = wire.Task{
		Name: "power", Features: []string{"warm", "wet", "wind"}, TargetColumn: "power", MinSamples: 5,
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared, HasBias: true,
			Ridge: 0.001},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, BatchSize: 4, StepSize: 0.3,
			NormalizesStepSize:   true,
			StepTimeBudgetMillis: 1000, MinLocalSteps: 2, MaxLocalSteps: 10},
	}
	r := &f.cfg.Round
	r.Participants, r.Quorum, r.MaxAggregations, r.AgentWeightRule = n, n, 5, spec.WeightsSamples
	r.Gather = round.GatherConfig{TargetAgents: n, MinAgents: n, WindowLength: 30 * time.Second,
		HelloSpread: time.Second}
	r.RoundTimeout = 10 * time.Minute
	for i := range n {
		p := f.enrol(wire.AgentID(fmt.Sprintf("a%d", i)))
		p.data = rowsOf(uint64(i), 20+5*i)
		// The agents take E_k = 10, 6, 5, 4, … local steps per round.
		p.cfg.Training.DeclaredStepTime = time.Duration(100+50*i) * time.Millisecond
		f.agents = append(f.agents, p)
	}
	t.Cleanup(f.stop)
	return f
}

// enrol creates an agent and adds its key to the list.
func (f *federation) enrol(id wire.AgentID) *process {
	p := &process{f: f, id: id, key: hosts.TestKey(id), dir: f.t.TempDir(),
		cfg: agent.Config{MaxBlobBytes: 16 << 20, TaskData: taskdata.Config{MinRows: 3}}}
	f.keys[id] = p.key.Public().(ed25519.PublicKey)
	f.cfg.Agents = enrolled.NewListFromKeys(f.keys)
	return p
}

func (f *federation) start() {
	f.coord.start()
	for _, a := range f.agents {
		a.start()
	}
}

func (f *federation) stop() {
	for _, p := range append(f.agents, f.coord) {
		p.stop()
	}
	if f.broker != nil {
		wait(time.Minute) // wait until work in progress is done
	}
}

// start starts the process with the contents of its folder.
func (p *process) start() {
	p.f.t.Helper()
	p.started++
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{cancel: cancel, done: make(chan struct{})}
	p.life = l
	run, err := p.make(l)
	if err != nil {
		cancel()
		close(l.done)
		p.f.t.Fatalf("%s does not start: %v", p.id, err)
	}
	go func() {
		defer close(l.done)
		l.err = run(ctx)
	}()
}

func (p *process) make(l *life) (func(context.Context) error, error) {
	f, keep := p.f, func(event observe.Event) { p.keep(l, event) }
	client := f.topics.ClientID(p.id)
	if p.id == wire.CoordinatorID {
		cfg := f.cfg
		cfg.RaiseEpoch, cfg.NewRun = cfg.RaiseEpoch || p.takeOver, cfg.NewRun || p.newRun
		cfg.StateDir, cfg.Observer = p.dir, observer(keep)
		if p.engine != nil {
			return p.amongSeveral(l, cfg, func() mqtt.Conn { return conn2{f.connect(client, nil), p, l} }), nil
		}
		conn := f.connect(client, nil)
		c, err := coordinator.New(cfg, conn2{conn, p, l})
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		f.host = c
		return c.Run, nil
	}
	p.boot++
	cfg := p.cfg
	cfg.Federation, cfg.ID, cfg.Identity.Key, cfg.Identity.Coordinator, cfg.Topics = fedName, p.id, p.key,
		f.coord.key.Public().(ed25519.PublicKey), f.topics
	cfg.TaskData.Source, cfg.StateDir, cfg.BootEpoch, cfg.Observer, cfg.Logger = p.data.source(), p.dir, p.boot,
		testkit.Observer(keep), f.cfg.Logger
	if p.file.CSVPath != "" {
		of, err := sources.Open(&p.file)
		if err != nil {
			return nil, err
		}
		cfg.TaskData.Source = of
	}
	if cfg.Training.Trainer == nil {
		cfg.Training.Trainer = liar.Trainer{Trainer: slow.Trainer{Trainer: training.LocalTrainer{},
			StepTime: cfg.Training.DeclaredStepTime},
			Lie: p.lie}
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(uint64(p.boot), uint64(len(p.id))+uint64(p.id[len(p.id)-1])))
	}
	a, err := agent.New(cfg, func(will func() mqtt.Message) (mqtt.Conn,
		error) {
		return conn2{f.connect(client, will), p, l}, nil
	})
	if err != nil {
		return nil, err
	}
	return a.Run, nil
}

// stop stops the process gracefully.
func (p *process) stop() {
	if p.life == nil {
		return
	}
	p.life.cancel()
	<-p.life.done
	if err := p.life.err; err != nil && !p.life.dead {
		p.f.t.Errorf("%s: %v", p.id, err)
	}
}

// kill disconnects the process and preserves its folder for the next start. It may be called on the owner goroutine,
// whose further actions then have no effect.
func (p *process) kill() {
	p.f.mu.Lock()
	p.life.dead = true // before copying the folder, which contains all that was sent until then
	p.f.mu.Unlock()
	frozen := p.frozen()
	p.f.mu.Lock()
	p.dir = frozen
	p.f.mu.Unlock()
	p.f.broker.Disconnect(p.f.topics.ClientID(p.id))
	p.life.cancel()
}

// frozen returns a copy of the folder as it was at one moment. It copies again if a file changed during the copy.
func (p *process) frozen() string {
	for range 1000 {
		copied, before := p.f.t.TempDir(), entries(p.dir)
		err := os.CopyFS(copied, os.DirFS(p.dir))
		if !slices.EqualFunc(before, entries(p.dir), sameFile) {
			continue
		}
		if err != nil {
			p.f.t.Errorf("copy of the folder of %s: %v", p.id, err)
		}
		return copied
	}
	p.f.t.Errorf("the folder of %s is never still", p.id)
	return p.dir
}

// entries returns the files in a folder, with nil for files that have vanished since they were listed.
func entries(dir string) []fs.FileInfo {
	var found []fs.FileInfo
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			found = append(found, nil)
			return nil
		}
		info, err := d.Info()
		if err != nil {
			info = nil
		}
		found = append(found, info)
		return nil
	})
	return found
}

func sameFile(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// again restarts a process that was killed.
func (p *process) again() {
	<-p.life.done
	p.start()
}

// conn2 is a connection that passes each sent message to the callback moment of the process.
type conn2 struct {
	mqtt.Conn
	p *process
	l *life
}

func (c conn2) Publish(m mqtt.Message) error {
	if c.p.f.isDead(c.l) {
		return nil
	}
	if c.p.moment != nil {
		c.p.moment(m)
	}
	if kind, _, _, _, _ := c.p.f.topics.ParseTopic(m.Topic); c.p.sendsNothing && kind == mqtt.KindUpdate {
		return nil
	}
	return c.Conn.Publish(m)
}

// keep records an event of a process.
func (p *process) keep(l *life, event observe.Event) {
	f := p.f
	if f.isDead(l) {
		return
	}
	f.mu.Lock()
	f.log = append(f.log, happening{p.id, time.Now(), event})
	f.mu.Unlock()
	if p.moment != nil {
		p.moment(event)
	}
	select {
	case f.news <- struct{}{}:
	default:
	}
}

func (f *federation) isDead(l *life) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return l.dead
}

// until waits until ok returns true, and checks it after each event.
func (f *federation) until(limit time.Duration, what string, ok func() bool) {
	f.t.Helper()
	late := time.After(limit)
	for !ok() {
		select {
		case <-f.news:
		case <-late:
			f.t.Fatalf("after %v: not %s; the last events:\n%s", limit, what, f.tail(40))
		}
	}
}

// finished waits for the end of the run and returns the hash of the last model.
func (f *federation) finished(limit time.Duration) wire.Digest {
	f.t.Helper()
	f.until(limit, "finished", func() bool {
		obeyed := events[agentround.AnnouncementObeyed](f)
		return slices.ContainsFunc(obeyed,
			func(o agentround.AnnouncementObeyed) bool { return o.Position.Phase == wire.PhaseFinished })
	})
	models := events[aggregation.ModelReady](f)
	return models[len(models)-1].Hash
}

// events returns all events of a type, or only the events of the given processes.
func events[F any](f *federation, who ...wire.AgentID) []F {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []F
	for _, h := range f.log {
		if x, ok := h.event.(F); ok && (len(who) == 0 || slices.Contains(who, h.who)) {
			all = append(all, x)
		}
	}
	return all
}

func (f *federation) tail(n int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, h := range f.log[max(0, len(f.log)-n):] {
		fmt.Fprintf(&b, "%s %s %s %.200v\n", h.at.Format("15:04:05.000"), h.who, reflect.TypeOf(h.event),
			fmt.Sprintf("%+v", h.event))
	}
	return b.String()
}

// path returns a path in the folder of a process. It may be called concurrently with a kill.
func (p *process) path(names ...string) string {
	p.f.mu.Lock()
	dir := p.dir
	p.f.mu.Unlock()
	return filepath.Join(append([]string{dir}, names...)...)
}

// wait waits for d.
func wait(d time.Duration) { <-time.After(d) }
