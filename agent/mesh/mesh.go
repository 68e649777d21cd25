// Package mesh connects an agent to the neighbours with which it mixes parameters; without mixing the mesh is empty. It
// manages the connection to the neighbours' broker and the scout, which finds neighbours by their beacons.
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

// Config configures the connection to the neighbours.
type Config struct {
	// ConnectNeighborBroker opens the connection to the neighbours' broker. Nil means the coordinator's broker.
	ConnectNeighborBroker func() (mqtt.Conn, error)
	Location              wire.AgentLocation
	// Cell is the name of the cell (a group of devices that announce themselves to each other) in which the agent
	// searches for up to MaxNeighbors neighbours. Empty means that the agent does not search.
	Cell         string
	MaxNeighbors int
	// FillRandom fills p with random bytes for keys. It is crypto/rand.Read except in tests.
	FillRandom func(p []byte)
}

// Validate returns an error if the configuration is invalid.
func (c *Config) Validate() error {
	if c.Cell != "" && (mqtt.CheckCellName(c.Cell) != nil || c.MaxNeighbors < 1 || c.MaxNeighbors > wire.MaxNeighbors) {
		return fmt.Errorf("neighbour discovery requires a valid cell name and a neighbour limit between 1 and %d",
			wire.MaxNeighbors)
	}
	return nil
}

// UsesCoordinatorBroker reports whether the agent exchanges messages with its neighbours through the coordinator's
// broker.
func (c *Config) UsesCoordinatorBroker() bool { return c == nil || c.ConnectNeighborBroker == nil }

// NeighborMesh is the part of an agent that communicates with its neighbours.
type NeighborMesh struct {
	// BlockInbox contains the neighbours' messages for the current block of local steps. BlockWaiter notifies the block
	// of new messages.
	BlockInbox         chan mqtt.Message
	BlockWaiter        host.JobWaiter
	NeighborBrokerConn mqtt.Conn // connection to the neighbours' broker

	core             *part.AgentCore
	cfg              *Config // configuration; nil if the agent does not mix
	trust            BeaconTrustProvider
	callbacks        EventCallbacks
	devicePrivateKey *ecdh.PrivateKey // key for shared secrets with neighbours; nil if the agent does not mix

	scoutInbox        chan d2d.BeaconReceived
	scoutLinkChanges  chan d2d.BrokerLinkChanged // newest change of the broker connection
	scoutWaiter       host.JobWaiter
	scoutEnded        atomic.Bool
	beaconKeysChanged chan struct{} // signals that beaconKeys was replaced
	beaconKeys        atomic.Pointer[beaconKeys]
	chosenNeighbors   []wire.AgentID // neighbours that the scout has chosen
}

// BeaconTrustProvider provides the coordinator's keys and the revoked agents for verifying beacons.
type BeaconTrustProvider interface {
	CoordinatorKeys() []ed25519.PublicKey
	RevokedAgents() []wire.AgentID
}

// EventCallbacks contains callbacks that the mesh calls on the event loop.
type EventCallbacks struct {
	// OnFiltersRefused is called with the topic filters to which the neighbours' broker refuses a subscription.
	OnFiltersRefused func(filters []string)
	// OnBeaconDropped is called with the reason after a beacon was dropped.
	OnBeaconDropped func(err error)
}

// inboxCapacity is the maximum number of messages queued for the current block. If the queue is full, the message is
// dropped and requested again later.
const inboxCapacity = 1024

// New returns a NeighborMesh that is connected to the neighbours' broker and has loaded the attestation of the agent's
// key. core.Conn must be set, and cfg is nil for an agent that does not mix.
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
			return nil, fmt.Errorf("cannot connect to the MQTT broker for device-to-device traffic: %w", err)
		}
	}
	return m, nil
}

// CanMix reports whether the agent is configured to mix parameters with neighbours.
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

// NeedsLink implements part.LinkNeedReporter. It returns true if the scout uses the coordinator's broker.
func (m *NeighborMesh) NeedsLink() bool { return m.cfg.UsesCoordinatorBroker() && m.hasCell() }

// FillHello implements part.HelloFiller.
func (m *NeighborMesh) FillHello(h *wire.Hello) {
	h.ChosenNeighbors, h.SupportsClippedMixing = m.chosenNeighbors, m.devicePrivateKey != nil
	if m.devicePrivateKey != nil {
		copy(h.PeerKey[:], m.devicePrivateKey.PublicKey().Bytes())
		h.Location = m.cfg.Location
	}
}

// runNeighborConnection receives messages over the separate connection to the neighbours' broker until the connection
// is closed or the agent stops.
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

// RouteMessage passes a neighbour's message to the current block of local steps or to the scout.
func (m *NeighborMesh) RouteMessage(msg mqtt.Message) {
	kind, from, _, _, _ := m.core.Topics.ParseTopic(msg.Topic)
	if kind == mqtt.KindBeacon {
		if m.hasCell() {
			select {
			case m.scoutInbox <- d2d.BeaconReceived{TopicOwner: from, Payload: msg.Payload, IsRetained: msg.Retained}:
			default: // Drop the beacon if the queue is full, because beacons are repeated.
			}
			m.scoutWaiter.Wake()
		}
		return
	}
	select {
	case m.BlockInbox <- msg:
	default: // Drop the message if the queue is full; the block requests the message again.
	}
	m.BlockWaiter.Wake()
}

// maxSilentWaits is the maximum number of consecutive timeouts while the agent waits for a neighbour's message.
const maxSilentWaits = 3

// MakeExchangeConfig returns the configuration for exchanging parameters during a block with the given number of mixing
// steps. The number 0 means an endless block.
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
		cfg.SenderProofs = p.RequiresSenderProofs // This value is equal for all neighbours.
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
