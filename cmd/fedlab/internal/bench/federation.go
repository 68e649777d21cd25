package bench

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

var (
	schema = wire.Digest(sha256.Sum256([]byte("a vector")))
	text   = []byte("a task, whatever it says")
	task   = wire.BlobRef{Hash: sha256.Sum256(text), Length: uint32(len(text)), Inline: text}
)

// variant is how a round of ours is played.
type variant struct {
	signed bool
	dir    string // of the spool, if there is one
}

// play is one round of ours.
type play struct {
	variant
	number    wire.RoundID
	model     []byte
	update    wire.Manifest // all agents send the same: d·N bytes of memory would say nothing
	payload   []byte
	spool     *store.Spool // or nil
	out, back *count
	failed    chan error
}

// check ends the round on an error, the first one only.
func (p *play) check(err error) {
	if err != nil {
		select {
		case p.failed <- err:
		default:
		}
	}
}

// fleet is a coordinator and its agents.
type fleet struct {
	server  *server
	devices []*device
	payload []byte
	update  wire.Manifest
	played  wire.RoundID
	current atomic.Pointer[play]
	end     context.CancelFunc
	meter   meter
	hosts   sync.WaitGroup
}

func connectFederation(ctx context.Context, b *site, n int, payload []byte) (*fleet, error) {
	topics, err := mqtt.NewTopics("", federation)
	if err != nil {
		return nil, err
	}
	update, err := wire.NewManifest(payload, schema)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &fleet{payload: payload, update: update, end: cancel, meter: b.meter}
	rng := rand.NewChaCha8([32]byte{1})
	public, key, _ := ed25519.GenerateKey(rng)
	receiving := transfer.DefaultReceiverConfig()
	receiving.MaxUpdate = len(payload)
	f.server = &server{
		topics: topics, keys: map[wire.AgentID]ed25519.PublicKey{}, receiver: transfer.NewReceiver(receiving),
		voice:  &voice{sender: wire.CoordinatorID, key: key, unsigned: map[wire.Type][]byte{}},
		sealed: map[wire.AgentID][]byte{}, accepted: map[wire.AgentID]wire.Digest{},
		results: make(chan func()), begin: make(chan *play),
	}
	// As the daemon does: all uploads of a round meet here.
	f.server.conn, err = dial(b, topics.ClientID(wire.CoordinatorID), func(o *mqtt.Options) {
		o.MailboxMessages, o.MailboxBytes = 16384, receiving.MaxBuffered
		o.OutboxMessages = 16384
	})
	if err != nil {
		return f, err
	}
	f.server.conn.Subscribe(mqtt.AtLeastOnce, topics.Updates(), topics.Presences(), topics.Statuses())
	for k := range n {
		d := &device{id: agentID(k), topics: topics, coordinator: public, rng: rand.New(rand.NewPCG(1, uint64(k))),
			current: f.current.Load, submit: make(chan *play)}
		own, key, _ := ed25519.GenerateKey(rng)
		f.server.keys[d.id] = own
		d.voice = &voice{sender: d.id, key: key, unsigned: map[wire.Type][]byte{}}
		if d.conn, err = dial(b, topics.ClientID(d.id), func(*mqtt.Options) {}); err != nil {
			return f, err
		}
		f.devices = append(f.devices, d)
		d.conn.Subscribe(mqtt.AtLeastOnce, topics.Round(), topics.Device(d.id))
	}
	return f, f.start(ctx)
}

// start waits until all are connected, and lets the owners run.
func (f *fleet) start(ctx context.Context) error {
	conns := []*mqtt.Session{f.server.conn}
	for _, d := range f.devices {
		conns = append(conns, d.conn)
	}
	for _, c := range conns {
		select {
		case e := <-c.Events():
			if _, up := e.(mqtt.Up); !up {
				return fmt.Errorf("while connecting: %#v", e)
			}
		case <-time.After(time.Minute):
			return fmt.Errorf("cannot connect %d sessions in a minute", len(conns))
		}
	}
	f.hosts.Go(func() { f.server.run(ctx) })
	for _, d := range f.devices {
		f.hosts.Go(func() { d.run(ctx) })
	}
	return nil
}

func dial(b *site, id string, more func(*mqtt.Options)) (*mqtt.Session, error) {
	o := mqtt.Options{URL: b.url, ClientID: id, Username: id, Password: b.password(id), MaxReconnectDelay: time.Second}
	more(&o)
	return mqtt.Dial(context.Background(), o)
}

func (f *fleet) close() {
	var closing sync.WaitGroup
	for _, d := range f.devices {
		closing.Go(func() { _ = d.conn.Close() })
	}
	if f.server.conn != nil {
		_ = f.server.conn.Close()
	}
	closing.Wait()
	f.end()
	f.hosts.Wait()
}

// round plays one round.
func (f *fleet) round(ctx context.Context, v variant) (s sample, err error) {
	f.played++
	p := &play{
		variant: v, number: f.played, model: append([]byte(nil), f.payload...), update: f.update, payload: f.payload,
		out: newCount(len(f.devices)), back: newCount(len(f.devices)), failed: make(chan error, 1),
	}
	binary.LittleEndian.PutUint64(p.model, uint64(f.played)) // each round has a model of its own
	if v.dir != "" {
		discard, err := p.openSpool()
		if err != nil {
			return s, err
		}
		defer discard()
	}
	f.current.Store(p)

	used, begun := f.meter.now(), time.Now()
	f.server.begin <- p
	if err := p.out.wait(ctx, p.failed); err != nil {
		return s, fmt.Errorf("model out: %w", err)
	}
	s.out = time.Since(begun)
	begun = time.Now()
	for _, d := range f.devices {
		d.submit <- p
	}
	if err := p.back.wait(ctx, p.failed); err != nil {
		return s, fmt.Errorf("updates back: %w", err)
	}
	s.back, s.cpu = time.Since(begun), f.meter.now()-used
	return s, f.rest(p)
}

// openSpool makes the spool in a new folder. Discard removes both.
func (p *play) openSpool() (discard func(), err error) {
	folder, err := os.MkdirTemp(p.dir, "fedmesh-bench-")
	if err != nil {
		return nil, err
	}
	id := store.SpoolID{Run: 1, Round: uint64(p.number)}
	p.spool, err = store.OpenSpool(filepath.Join(folder, "spool"), id,
		func(problem string) { p.check(fmt.Errorf("spool: %s", problem)) })
	if err != nil {
		_ = os.RemoveAll(folder)
		return nil, err
	}
	return func() {
		_ = p.spool.Close()
		_ = os.RemoveAll(folder)
	}, nil
}

// rest forgets the round, when the clock is stopped.
func (f *fleet) rest(p *play) error {
	forgotten := make(chan struct{})
	f.server.results <- func() {
		for _, d := range f.devices {
			f.server.receiver.Step(time.Now(), transfer.Drop{Agent: d.id})
		}
		clear(f.server.accepted)
		close(forgotten)
	}
	<-forgotten
	return f.server.clear(p.model)
}
