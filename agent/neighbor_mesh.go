package agent

import (
	"crypto/ecdh"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// MeshConfig says how an agent reaches its neighbours, where the algorithm has agents mix.
type MeshConfig struct {
	// Connect opens the connection to the neighbours' broker; nil shares the one to the coordinator.
	Connect func() (mqtt.Conn, error)
	Place   wire.Location
	// Cell is where the agent looks for neighbours by itself, at most MaxDegree of them; "" = it does
	// not.
	Cell      string
	MaxDegree int
	// Random fills key material: crypto/rand.Read but in tests.
	Random func(p []byte)
}

// mesh is an agent's way to its neighbours. An agent that is not configured for any has it, too, to take the steps of a
// block alone.
type mesh struct {
	cfg          *Config
	rt           host.Runtime
	conn         mqtt.Conn         // of the neighbours' broker
	sharesUplink bool              // it is the coordinator's, too
	signer       *host.Signer      // signs beacons
	private      *ecdh.PrivateKey  // nil if the agent does not mix
	inbox        chan mqtt.Message // for the block under way

	scoutInbox        chan d2d.BeaconReceived // for the scout
	scoutLinkChanges  chan d2d.LinkChanged    // for it, too: the newest
	scoutEnded        atomic.Bool             // it has ended
	beaconKeysChanged chan struct{}           // receives a value when beaconKeys was replaced
	beaconKeys        atomic.Pointer[beaconKeys]
	foundNeighbors    []wire.AgentID // neighbours; the owner's

	blockWaiter, scoutWaiter host.Waiter
}

// inboxCapacity bounds what waits for the block under way. A message that does not fit is asked for again.
const inboxCapacity = 1024

func newMesh(cfg *Config, signer *host.Signer, rt host.Runtime, uplink mqtt.Conn) (*mesh, error) {
	m := &mesh{cfg: cfg, signer: signer, rt: rt, conn: uplink, sharesUplink: true,
		inbox: make(chan mqtt.Message, inboxCapacity), scoutInbox: make(chan d2d.BeaconReceived, inboxCapacity),
		scoutLinkChanges: make(chan d2d.LinkChanged, 1), beaconKeysChanged: make(chan struct{}, 1),
		blockWaiter: rt.NewWaiter(), scoutWaiter: rt.NewWaiter()}
	if cfg.Mesh == nil {
		return m, nil
	}
	var err error
	if m.private, err = d2d.DeviceKey(signer.Key.Seed()); err != nil {
		return nil, err
	}
	if cfg.Mesh.Connect != nil {
		m.sharesUplink = false
		if m.conn, err = cfg.Mesh.Connect(); err != nil {
			return nil, fmt.Errorf("the neighbours' broker: %w", err)
		}
	}
	return m, nil
}

// peerKey is what the coordinator tells the neighbours; zero for an agent that does not mix.
func (m *mesh) peerKey() (k wire.X25519PublicKey) {
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

// receiveFromNeighbors hands on what comes over a connection of the mesh's own, until that is closed or the agent ends.
func (a *Agent) receiveFromNeighbors() {
	m, w := a.mesh, a.owner.NewWaiter()
	var refused mqtt.RefusedFilters
	for a.owner.Context().Err() == nil {
		e, open := w.Wait(a.owner.Context(), time.Time{}, m.conn.Events())
		if !open {
			return
		}
		if e != nil && refused.Step(e) {
			list := refused.List()
			a.owner.RunOnLoop(func() {
				a.refusedSiteFilters = list
				a.reportRefusedFilters()
			})
		}
		switch e := e.(type) {
		case mqtt.LinkUp:
			m.notifyScoutOfLink(true)
		case mqtt.LinkDown:
			m.notifyScoutOfLink(false)
		case mqtt.Received:
			m.routeMessage(e.Message)
		}
	}
}

// routeMessage hands a message to the block under way, or to the scout.
func (m *mesh) routeMessage(msg mqtt.Message) {
	kind, from, _, _, _ := m.cfg.Topics.Parse(msg.Topic)
	if kind == mqtt.KindBeacon {
		if m.hasCell() {
			select {
			case m.scoutInbox <- d2d.BeaconReceived{From: from, Payload: msg.Payload, Retained: msg.Retained}:
			default: // a beacon comes again
			}
			m.scoutWaiter.Wake()
		}
		return
	}
	select {
	case m.inbox <- msg:
	default: // the neighbour is asked for it again
	}
	m.blockWaiter.Wake()
}

// exchangeConfig is of a block with this many mixings; 0 = without an end.
func (m *mesh) exchangeConfig(e round.Train, t *wire.Task, mixings uint64) d2d.ExchangeConfig[float32] {
	ms := func(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
	cfg := d2d.ExchangeConfig[float32]{
		Self: m.cfg.ID, Run: e.Position.Run, Round: e.EdgeBlockRound, Codec: t.Mixing.Codec,
		Rand: task.AgentRand(task.CodecSeed(e.Announcement.Seed), e.EdgeBlockRound, task.AgentRandomKey(m.cfg.ID)),
		MixingConfig: d2d.MixingConfig[float32]{
			Boot: m.cfg.Boot, BlockSteps: mixings,
			SnapshotTimeout: ms(t.Mixing.SnapshotWaitMillis), RepeatInterval: ms(t.Mixing.SnapshotRetryMillis),
			DrainTimeout: ms(t.Mixing.DrainMillis), MaxSilentWaits: maxSilentWaits,
		},
	}
	for _, p := range e.MixingPeers {
		cfg.SenderProofs = p.RequiresProofs // of all, or of none
		cfg.Neighbors = append(cfg.Neighbors, d2d.Neighbor{ID: p.ID, Weight: p.MixingWeight, FlowBound: p.ClipBound,
			Boot: p.Boot,
			Key:  p.Key[:]})
	}
	if !t.Mixing.Unsealed && len(e.MixingPeers) > 0 {
		cfg.Keys = &d2d.ExchangeKeys{Private: m.private}
		m.cfg.Mesh.Random(cfg.Keys.SenderKey[:])
		m.cfg.Mesh.Random(cfg.Keys.Salt[:])
	}
	return cfg
}
