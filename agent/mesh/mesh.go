// Package mesh is how an agent reaches the neighbours with which it mixes: the connection to their broker, the scout
// that looks for neighbours, and the beacons by which agents find each other. An agent that does not mix has a mesh
// without neighbours.
package mesh

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Config says how an agent reaches its neighbours.
type Config struct {
	// ConnectNeighborBroker opens the connection to the neighbours' broker. Nil means the coordinator's broker.
	ConnectNeighborBroker func() (mqtt.Conn, error)
	Location              wire.AgentLocation
	// Cell is where the agent looks for at most MaxNeighbors neighbours. Empty means that it does not look for any.
	Cell         string
	MaxNeighbors int
	// FillRandom fills key material: crypto/rand.Read, except in tests.
	FillRandom func(p []byte)
}

// Validate returns why the configuration cannot be used.
func (c *Config) Validate() error {
	if c.Cell != "" && (mqtt.CheckCellName(c.Cell) != nil || c.MaxNeighbors < 1 || c.MaxNeighbors > wire.MaxNeighbors) {
		return fmt.Errorf("looking for neighbours needs the name of a cell and 1 to %d neighbours", wire.MaxNeighbors)
	}
	return nil
}

// UsesCoordinatorBroker reports whether the neighbours are reached over the coordinator's broker.
func (c *Config) UsesCoordinatorBroker() bool { return c == nil || c.ConnectNeighborBroker == nil }

// NeighborMesh is the part of an agent that reaches its neighbours.
type NeighborMesh struct {
	// BlockInbox has the neighbours' messages for the present block, which reads them. BlockWaiter wakes the block.
	BlockInbox         chan mqtt.Message
	BlockWaiter        host.JobWaiter
	NeighborBrokerConn mqtt.Conn // to the neighbours' broker

	core             *part.AgentCore
	cfg              *Config // nil if the agent does not mix
	trust            BeaconTrustProvider
	callbacks        EventCallbacks
	devicePrivateKey *ecdh.PrivateKey // nil if the agent does not mix

	scoutInbox        chan d2d.BeaconReceived
	scoutLinkChanges  chan d2d.BrokerLinkChanged // the newest
	scoutWaiter       host.JobWaiter
	scoutEnded        atomic.Bool
	beaconKeysChanged chan struct{} // has a value when beaconKeys was replaced
	beaconKeys        atomic.Pointer[beaconKeys]
	chosenNeighbors   []wire.AgentID // that the scout has chosen
}

// BeaconTrustProvider is whose beacons count.
type BeaconTrustProvider interface {
	CoordinatorKeys() []ed25519.PublicKey
	RevokedAgents() []wire.AgentID
}

// EventCallbacks are called on the owner's goroutine.
type EventCallbacks struct {
	// OnFiltersRefused: the neighbours' broker refuses these filters.
	OnFiltersRefused func(filters []string)
	// OnBeaconDropped: a beacon was not used.
	OnBeaconDropped func(err error)
}

// inboxCapacity limits the messages that wait for the present block. A message that does not fit is requested again.
const inboxCapacity = 1024

// New makes the mesh, connects to the neighbours' broker, and loads the coordinator's attestation of the agent's key.
// cfg is nil for an agent that does not mix. The connection of core must be there.
func New(core *part.AgentCore, cfg *Config, trust BeaconTrustProvider, events EventCallbacks) (*NeighborMesh, error) {
	m := &NeighborMesh{core: core, cfg: cfg, trust: trust, callbacks: events, NeighborBrokerConn: core.Conn,
		BlockInbox: make(chan mqtt.Message, inboxCapacity), scoutInbox: make(chan d2d.BeaconReceived, inboxCapacity),
		scoutLinkChanges: make(chan d2d.BrokerLinkChanged, 1), beaconKeysChanged: make(chan struct{}, 1),
		BlockWaiter: core.Loop.NewWaiter(), scoutWaiter: core.Loop.NewWaiter()}
	attestation, err := loadAttestation(core.StateFolder)
	if err != nil {
		return nil, err
	}
	m.beaconKeys.Store(m.newBeaconKeys(attestation))
	if cfg == nil {
		return m, nil
	}
	if m.devicePrivateKey, err = d2d.DeriveDeviceKey(core.Signer.Key.Seed()); err != nil {
		return nil, err
	}
	if !cfg.UsesCoordinatorBroker() {
		if m.NeighborBrokerConn, err = cfg.ConnectNeighborBroker(); err != nil {
			return nil, fmt.Errorf("the neighbours' broker: %w", err)
		}
	}
	return m, nil
}

// CanMix reports whether the agent is configured to mix.
func (m *NeighborMesh) CanMix() bool { return m.devicePrivateKey != nil }

// Start implements part.Starter.
func (m *NeighborMesh) Start() {
	if !m.cfg.UsesCoordinatorBroker() {
		m.core.Loop.Go(m.runNeighborConnection)
	}
	m.startScout()
}

// Close implements part.Closer.
func (m *NeighborMesh) Close() {
	if !m.cfg.UsesCoordinatorBroker() {
		_ = m.NeighborBrokerConn.Close()
	}
}

// LinkUp implements part.LinkFollower.
func (m *NeighborMesh) LinkUp() { m.handleUplinkChange(true) }

// LinkDown implements part.LinkFollower.
func (m *NeighborMesh) LinkDown(error) { m.handleUplinkChange(false) }

func (m *NeighborMesh) handleUplinkChange(up bool) {
	if m.cfg.UsesCoordinatorBroker() {
		m.notifyScoutOfLink(up)
	}
}

// NeedsLink implements part.LinkNeedReporter: the scout works over the coordinator's broker if it is the neighbours',
// too.
func (m *NeighborMesh) NeedsLink() bool { return m.cfg.UsesCoordinatorBroker() && m.hasCell() }

// FillHello implements part.HelloFiller.
func (m *NeighborMesh) FillHello(h *wire.Hello) {
	h.ChosenNeighbors, h.SupportsClippedMixing = m.chosenNeighbors, m.devicePrivateKey != nil
	if m.devicePrivateKey != nil {
		copy(h.PeerKey[:], m.devicePrivateKey.PublicKey().Bytes())
		h.Location = m.cfg.Location
	}
}

// runNeighborConnection receives messages over a connection of the mesh's own, until that is closed or the agent ends.
func (m *NeighborMesh) runNeighborConnection() {
	w := m.core.Loop.NewWaiter()
	var refused mqtt.RefusedFilters
	for m.core.Loop.Context().Err() == nil {
		e, open := w.Wait(m.core.Loop.Context(), time.Time{}, m.NeighborBrokerConn.Events())
		if !open {
			return
		}
		if e != nil && refused.Step(e) {
			list := refused.List()
			m.core.Loop.RunOnLoop(func() { m.callbacks.OnFiltersRefused(list) })
		}
		switch e := e.(type) {
		case mqtt.LinkUp:
			m.notifyScoutOfLink(true)
		case mqtt.LinkDown:
			m.notifyScoutOfLink(false)
		case mqtt.MessageReceived:
			m.RouteMessage(e.Message)
		}
	}
}

// RouteMessage passes a message to the present block, or to the scout.
func (m *NeighborMesh) RouteMessage(msg mqtt.Message) {
	kind, from, _, _, _ := m.core.Topics.ParseTopic(msg.Topic)
	if kind == mqtt.KindBeacon {
		if m.hasCell() {
			select {
			case m.scoutInbox <- d2d.BeaconReceived{TopicOwner: from, Payload: msg.Payload, IsRetained: msg.Retained}:
			default: // a beacon is repeated
			}
			m.scoutWaiter.Wake()
		}
		return
	}
	select {
	case m.BlockInbox <- msg:
	default: // the neighbour is asked for it again
	}
	m.BlockWaiter.Wake()
}

// maxSilentWaits is how many waits in a row for a silent neighbour may time out.
const maxSilentWaits = 3

// MakeExchangeConfig returns the configuration of the exchange in a block with this many mixing steps; 0 = a block
// without an end.
func (m *NeighborMesh) MakeExchangeConfig(e agentround.StartTraining, t *wire.Task,
	mixings uint64) d2d.MessageExchangeConfig[float32] {
	ms := func(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
	cfg := d2d.MessageExchangeConfig[float32]{
		Self: m.core.ID, Run: e.Position.Run, Round: e.MixingBlockRound, Codec: t.Mixing.SnapshotCodec,
		Rand: task.AgentRand(task.CodecSeed(e.Announcement.Seed), e.MixingBlockRound, task.AgentRandomKey(m.core.ID)),
		MixingConfig: d2d.MixingConfig[float32]{
			Boot: m.core.Signer.Epoch, BlockSteps: mixings,
			SnapshotTimeout: ms(t.Mixing.SnapshotWaitMillis), RepeatInterval: ms(t.Mixing.SnapshotRetryMillis),
			DrainTimeout: ms(t.Mixing.LateSnapshotMillis), MaxSilentWaits: maxSilentWaits,
		},
	}
	for _, p := range e.MixingPeers {
		cfg.SenderProofs = p.RequiresSenderProofs // of all, or of none
		cfg.Neighbors = append(cfg.Neighbors, d2d.Neighbor{ID: p.ID, MixingWeight: p.MixingWeight,
			ClipBound: p.ClipBound,
			Boot:      p.BootEpoch,
			PublicKey: p.PublicKey[:]})
	}
	if !t.Mixing.IsUnsealed && len(e.MixingPeers) > 0 {
		cfg.Keys = &d2d.SealingKeys{DevicePrivateKey: m.devicePrivateKey}
		m.cfg.FillRandom(cfg.Keys.SenderKey[:])
		m.cfg.FillRandom(cfg.Keys.WrappingSalt[:])
	}
	return cfg
}
