package agent

import (
	"context"
	"crypto/ecdh"
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// MeshConfig says how an agent reaches its neighbours, where the algorithm has agents mix.
type MeshConfig struct {
	// Connect opens the connection to the neighbours' broker; nil shares the one to the coordinator.
	Connect func() (mqtt.Conn, error)
	Place   wire.Location
	// Cell is within which the agent looks for neighbours by itself, of which it takes MaxDegree at most; "" = it does
	// not.
	Cell      string
	MaxDegree int
	// Random fills key material: crypto/rand.Read but in tests.
	Random func(p []byte)
}

// mesh is an agent's way to its neighbours. One that is not configured for
// any has it all the same, to take the steps of a block alone.
type mesh struct {
	cfg     *Config
	conn    mqtt.Conn         // of the neighbours' broker
	shared  bool              // it is the coordinator's, too
	private *ecdh.PrivateKey  // nil if the agent does not mix
	inbox   chan mqtt.Message // for the block under way
	block   chan struct{}     // closed when the last block has ended

	scouting chan d2d.Heard  // for the scout
	links    chan d2d.Linked // for it, too: the newest
	scouted  chan struct{}   // closed when it has ended
	found    []wire.AgentID  // neighbours; the owner's
	refused  chan []string   // filters that the neighbours' broker refuses: the newest list, for the owner
}

// waiting bounds what waits for the block under way. What does not fit is asked for again.
const waiting = 1024

func newMesh(cfg *Config, uplink mqtt.Conn) (*mesh, error) {
	m := &mesh{cfg: cfg, conn: uplink, shared: true, inbox: make(chan mqtt.Message, waiting),
		block:    make(chan struct{}),
		scouting: make(chan d2d.Heard, waiting), links: make(chan d2d.Linked, 1), scouted: make(chan struct{}),
		refused: make(chan []string, 1)}
	close(m.block)
	if cfg.Mesh == nil {
		return m, nil
	}
	var err error
	if m.private, err = d2d.DeviceKey(cfg.Key.Seed()); err != nil {
		return nil, err
	}
	if cfg.Mesh.Connect != nil {
		m.shared = false
		if m.conn, err = cfg.Mesh.Connect(); err != nil {
			return nil, fmt.Errorf("the neighbours' broker: %w", err)
		}
	}
	return m, nil
}

// peerKey is what the coordinator tells the neighbours; zero for an agent that does not mix.
func (m *mesh) peerKey() (k wire.PeerKey) {
	if m.private != nil {
		copy(k[:], m.private.PublicKey().Bytes())
	}
	return k
}

func (m *mesh) place() wire.Location {
	if m.private == nil {
		return wire.Location{}
	}
	return m.cfg.Mesh.Place
}

// listen hands on what comes over a connection of the mesh's own, until that is closed.
func (m *mesh) listen() {
	var refused mqtt.RefusedFilters
	for e := range m.conn.Events() {
		if refused.Step(e) {
			m.tellRefused(refused.List())
		}
		switch e := e.(type) {
		case mqtt.Up:
			m.linked(true)
		case mqtt.Down:
			m.linked(false)
		case mqtt.Received:
			m.take(e.Message)
		}
	}
}

// tellRefused hands the owner a list, in the place of one that it has not taken yet.
func (m *mesh) tellRefused(list []string) {
	select {
	case <-m.refused:
	default:
	}
	m.refused <- list
}

// take hands a message to the block under way, or to the scout.
func (m *mesh) take(msg mqtt.Message) {
	kind, from, _, _, _ := m.cfg.Topics.Parse(msg.Topic)
	if kind == mqtt.KindBeacon {
		if m.scouts() {
			select {
			case m.scouting <- d2d.Heard{From: from, Payload: msg.Payload, Retained: msg.Retained}:
			default: // a beacon comes again
			}
		}
		return
	}
	select {
	case m.inbox <- msg:
	default: // the neighbour is asked for it again
	}
}

// mixing is the host of one block's machine: one goroutine, which owns the parameters.
type mixing struct {
	*mesh
	e        round.Train
	steps    Block
	machine  *d2d.Block[float32]
	x        []float32
	taken    uint64        // local steps so far
	computed time.Duration // in them, since the last answer
	events   []d2d.Event

	answer func(s d2d.Stats, err error) // the round; the parameters are as it wants them, unless there is an error
	// Where blocks have no end, what the agent's owner says, and how to begin and save the block.
	asks  chan *ask
	bars  chan bool
	began func(joined bool)
	save  func()
	asked *ask // waits for its answer
}

// newMixing prepares a block; joins says that the others may be in it already.
func (m *mesh) newMixing(e round.Train, t *wire.Task, steps Block, base []float32, joins bool) (*mixing, error) {
	x := append([]float32(nil), base...)
	cfg := m.exchangeConfig(e, t)
	_, cfg.Ledger = steps.(Audited)
	if joins {
		cfg.Join = joining * cfg.Repeat
	}
	machine, err := d2d.NewBlock(d2d.BlockConfig{Every: uint64(t.Mixing.Every), Within: uint64(t.Training.MaxSteps),
		Keep: keepEvery}, cfg, x)
	return &mixing{mesh: m, e: e, steps: steps, machine: machine, x: x}, err
}

// work runs the block, with what comes from its neighbours.
// The error is why it went no further before ctx ended.
func (b *mixing) work(ctx context.Context) error {
	filters := make([]string, 0, len(b.e.Peers))
	for _, p := range b.e.Peers {
		filters = append(filters, b.cfg.Topics.PeerParts(p.ID, b.e.Block))
	}
	if len(filters) > 0 {
		b.conn.Subscribe(mqtt.AtMostOnce, filters...)
		defer b.conn.Unsubscribe(filters...)
	}
	return b.run(ctx)
}

func (m *mesh) exchangeConfig(e round.Train, t *wire.Task) d2d.ExchangeConfig[float32] {
	ms := func(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
	cfg := d2d.ExchangeConfig[float32]{
		Self: m.cfg.ID, Run: e.Order.Run, Round: e.Block, Codec: t.Mixing.Codec,
		Config: d2d.Config[float32]{
			Boot: m.cfg.Boot, Steps: uint64(t.Training.MaxSteps / t.Mixing.Every),
			Wait: ms(t.Mixing.Wait), Repeat: ms(t.Mixing.Repeat), Drain: ms(t.Mixing.Drain), Patience: patience,
		},
	}
	if t.Mixing.Endless {
		cfg.Steps = 0
	}
	for _, p := range e.Peers {
		cfg.Neighbors = append(cfg.Neighbors, d2d.Neighbor{ID: p.ID, Weight: p.Weight, Boot: p.Boot, Key: p.Key[:]})
	}
	if !t.Mixing.Open && len(e.Peers) > 0 {
		cfg.Keys = &d2d.Keys{Private: m.private}
		m.cfg.Mesh.Random(cfg.Keys.Sender[:])
		m.cfg.Mesh.Random(cfg.Keys.Salt[:])
	}
	return cfg
}

// joining is how many repeat intervals an agent that comes back waits for a neighbour's snapshot.
const joining = 20

// patience is how many waits in a row a silent neighbour may spoil.
const patience = 3

// run is the block's loop. After the last step of a block with an end it goes on answering the neighbours.
func (b *mixing) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	if audited, ok := b.steps.(Audited); ok {
		defer func() { audited.Ended(b.machine.Books()) }()
	}
	b.events = append(b.events, d2d.Start{})
	for ctx.Err() == nil {
		b.hear() // steps that wait for nobody would go on without
		if len(b.events) > 0 {
			ev := b.events[0]
			b.events = b.events[1:]
			if err := b.step(ev); err != nil {
				return err
			}
			continue
		}
		wait := time.Hour
		if at, ok := b.machine.Deadline(); ok {
			wait = time.Until(at)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case q := <-b.asks:
			b.ask(q)
		case yes := <-b.bars:
			b.events = append(b.events, d2d.Barred{Yes: yes})
		case msg := <-b.messages():
			b.events = append(b.events, d2d.Message{Payload: msg.Payload})
		case <-timer.C:
			b.events = append(b.events, d2d.Tick{})
		}
	}
	return nil
}

// messages are the neighbours', which are kept back from a block that rests.
func (b *mixing) messages() <-chan mqtt.Message {
	if b.machine.Resting() {
		return nil
	}
	return b.inbox
}

// hear takes what has come so far. The owner's words are for the moment between the steps that are taken and the next.
func (b *mixing) hear() {
	for {
		select {
		case q := <-b.asks:
			b.ask(q)
		case yes := <-b.bars:
			b.events = slices.Insert(b.events, 0, d2d.Event(d2d.Barred{Yes: yes}))
		case msg := <-b.messages():
			b.events = append(b.events, d2d.Message{Payload: msg.Payload})
		default:
			return
		}
	}
}

// ask takes a round's question, in the place of an earlier round's.
func (b *mixing) ask(q *ask) {
	b.asked = q
	b.events = slices.Insert(b.events, 0, d2d.Event(d2d.Wanted{}))
}

// step gives the machine an event and does what it asks for.
func (b *mixing) step(ev d2d.Event) error {
	for _, e := range b.machine.Step(time.Now(), ev) {
		switch e := e.(type) {
		case d2d.Publish:
			// What is not sent, the neighbours ask for.
			_ = b.conn.Publish(mqtt.Message{Topic: b.cfg.Topics.Peer(b.cfg.ID, b.e.Block, e.Part), Payload: e.Payload})
		case d2d.Take:
			if err := b.take(e); err != nil {
				return err
			}
			b.events = append(b.events, d2d.Stepped{})
		case d2d.Began:
			b.began(e.Joined)
		case d2d.Answer:
			b.answer(e.Stats, nil)
			b.computed = 0
		case d2d.Save:
			b.save()
		}
	}
	return nil
}

// take takes local steps.
func (b *mixing) take(e d2d.Take) error {
	began := time.Now()
	for t := e.First; t <= e.Last; t++ {
		b.taken = t
		if err := b.steps.Step(b.x, t); err != nil {
			return err
		}
	}
	b.computed += time.Since(began)
	return nil
}
