package mesh

import (
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// startScout starts the background job that searches for neighbours. It does nothing if no cell is configured.
func (m *NeighborMesh) startScout() {
	if !m.hasCell() {
		m.scoutEnded.Store(true)
		return
	}
	s := d2d.NewNeighborScout(d2d.ScoutConfig{
		OwnID: m.core.ID, Boot: m.core.Signer.Epoch, Location: m.cfg.Location, MaxNeighbors: m.cfg.MaxNeighbors,
		SignBeacon: m.signBeacon, CheckBeaconProof: m.checkBeacon,
		Rand: rand.New(rand.NewPCG(m.core.Rand.Uint64(), m.core.Rand.Uint64())),
	})
	m.NeighborBrokerConn.Subscribe(mqtt.AtMostOnce, m.core.Topics.CellBeaconsFilter(m.cfg.Cell))
	m.core.Loop.Go(func() {
		m.runScout(s)
		m.scoutEnded.Store(true)
	})
}

func (m *NeighborMesh) runScout(s *d2d.NeighborScout) {
	loop := m.core.Loop
	for loop.Context().Err() == nil {
		var ev d2d.Event
		at, due := s.Deadline()
		if link, ok := host.TryReceive(m.scoutLinkChanges); ok {
			ev = link
		} else if _, ok := host.TryReceive(m.beaconKeysChanged); ok {
			ev = d2d.AttestationReceived{}
		} else if beacon, ok := host.TryReceive(m.scoutInbox); ok {
			ev = beacon
		} else if due && !loop.Now().Before(at) {
			ev = d2d.Tick{}
		} else {
			m.scoutWaiter.Wait(loop.Context(), at, nil)
			continue
		}
		for _, e := range s.Step(loop.Now(), ev) {
			m.performScoutEffect(e)
		}
	}
}

func (m *NeighborMesh) performScoutEffect(e d2d.Effect) {
	switch e := e.(type) {
	case d2d.PublishBeacon:
		// Ignore the error: beacons are repeated.
		_ = m.NeighborBrokerConn.Publish(m.beaconMessage(e.Payload))
	case d2d.NeighborsChosen:
		m.core.Loop.RunOnLoop(func() {
			m.chosenNeighbors = e.Neighbors
			m.core.Observer.Observe(NeighborsChosen(e))
			m.core.HandleRoundEvent(agentround.NeighborsChanged{})
		})
	case d2d.BeaconRejected:
		m.core.Loop.RunOnLoop(func() { m.callbacks.OnBeaconDropped(e.Err) })
	}
}

// EndScout waits until the scout has ended, and deletes the agent's beacon. It is called after the agent has ended.
func (m *NeighborMesh) EndScout() {
	m.core.Loop.AwaitJobsAfterEnd(m.scoutEnded.Load)
	if m.hasCell() {
		// If this message is lost, other agents detect that this agent sends no more beacons.
		_ = m.NeighborBrokerConn.Publish(m.beaconMessage(nil))
	}
}

// beaconMessage returns the MQTT message with the agent's beacon. An empty payload deletes the retained beacon.
func (m *NeighborMesh) beaconMessage(payload []byte) mqtt.Message {
	return mqtt.Message{Topic: m.core.Topics.Beacon(m.cfg.Cell, m.core.ID), Payload: payload, QoS: mqtt.AtMostOnce,
		Retained: true}
}

// hasCell reports whether the agent has a cell in which it searches for neighbours.
func (m *NeighborMesh) hasCell() bool { return m.devicePrivateKey != nil && m.cfg.Cell != "" }

// notifyScoutOfLink notifies the scout of a change of the connection to the neighbours' broker. It replaces an earlier
// notification that is still unread.
func (m *NeighborMesh) notifyScoutOfLink(up bool) {
	if !m.hasCell() {
		return
	}
	host.ReplaceLatest(m.scoutLinkChanges, d2d.BrokerLinkChanged{IsConnected: up})
	m.scoutWaiter.Wake()
}

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{neighborCount, cellAgents}

var (
	neighborCount = observe.OptionalGauge("neighbors",
		"Number of neighbours that this device has chosen from the other devices in its cell.")
	cellAgents = observe.OptionalGauge("cell_agents",
		"Other devices present in the cell when this device last chose its neighbours.")
)

// NeighborsChosen reports the agents of its cell that the agent has selected as neighbours.
type NeighborsChosen struct {
	Neighbors            []wire.AgentID
	AliveOtherAgentCount int // number of other active agents in the cell
}

// Describe implements observe.Event.
func (e NeighborsChosen) Describe(d *observe.EventDescription) {
	d.SetGauge(neighborCount, float64(len(e.Neighbors)))
	d.SetGauge(cellAgents, float64(e.AliveOtherAgentCount))
	d.Log(observe.Info, "neighbours found", "neighbours", e.Neighbors, "agents_in_cell",
		e.AliveOtherAgentCount)
}
