package agent

import (
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// scout looks for neighbours beside the owner, if the agent has a cell to look in.
func (a *Agent) scout() {
	m := a.mesh
	if !m.hasCell() {
		m.scoutEnded.Store(true)
		return
	}
	s := d2d.NewScout(d2d.ScoutConfig{
		Self: a.cfg.ID, Boot: a.cfg.Boot, Location: m.cfg.Mesh.Place, MaxDegree: m.cfg.Mesh.MaxDegree,
		Sign: m.signBeacon, Check: m.checkBeacon,
		Rand: rand.New(rand.NewPCG(a.cfg.Rand.Uint64(), a.cfg.Rand.Uint64())),
	})
	m.conn.Subscribe(mqtt.AtMostOnce, a.cfg.Topics.BeaconsFilter(m.cfg.Mesh.Cell))
	a.owner.Go(func() {
		a.runScout(s)
		m.scoutEnded.Store(true)
	})
}

// runScout is the scout's loop.
func (a *Agent) runScout(s *d2d.Scout) {
	for a.owner.Context().Err() == nil {
		var ev d2d.Event
		at, due := s.Deadline()
		if link, ok := tryReceive(a.mesh.scoutLinkChanges); ok {
			ev = link
		} else if _, ok := tryReceive(a.mesh.beaconKeysChanged); ok {
			ev = d2d.AttestationReceived{}
		} else if heard, ok := tryReceive(a.mesh.scoutInbox); ok {
			ev = heard
		} else if due && !a.owner.Now().Before(at) {
			ev = d2d.Tick{}
		} else {
			a.mesh.scoutWaiter.Wait(a.owner.Context(), at, nil)
			continue
		}
		for _, e := range s.Step(a.owner.Now(), ev) {
			a.performScout(e)
		}
	}
}

func (a *Agent) performScout(e d2d.Effect) {
	switch e := e.(type) {
	case d2d.PublishBeacon:
		// the next one makes up for one that is not sent
		_ = a.mesh.conn.Publish(a.mesh.beacon(e.Payload))
	case d2d.NeighborsChosen:
		a.owner.RunOnLoop(func() {
			a.mesh.foundNeighbors = e.Neighbors
			a.cfg.Observer.Observe(NeighborsFound(e))
			a.stepRoundMachine(round.NeighborsFound{})
		})
	case d2d.BeaconRejected:
		a.owner.RunOnLoop(func() {
			reason, err := host.DropReason(e.Err, part.DropMalformed, part.DropVersion)
			a.cfg.Observer.Observe(MessageDropped{Kind: mqtt.KindBeacon, Reason: reason, Err: err})
		})
	}
}

// beacon is the message of the agent's beacon; an empty one deletes it.
func (m *mesh) beacon(payload []byte) mqtt.Message {
	return mqtt.Message{Topic: m.cfg.Topics.Beacon(m.cfg.Mesh.Cell, m.cfg.ID), Payload: payload, QoS: mqtt.AtMostOnce,
		Retained: true}
}

// deleteBeacon takes the agent's beacon away, when all else has ended.
func (m *mesh) deleteBeacon() {
	if m.hasCell() {
		_ = m.conn.Publish(m.beacon(nil)) // if the link is down the others will notice its silence
	}
}

// uplink takes note of the coordinator's broker, where that is the neighbours', too.
func (m *mesh) uplink(up bool) {
	if m.sharesUplink {
		m.notifyScoutOfLink(up)
	}
}

// hasCell tells whether the agent has a cell to look for neighbours in.
func (m *mesh) hasCell() bool { return m.private != nil && m.cfg.Mesh.Cell != "" }

// notifyScoutOfLink tells the scout of the neighbours' broker. The newest word takes the place of one that the scout
// has not taken yet.
func (m *mesh) notifyScoutOfLink(up bool) {
	if !m.hasCell() {
		return
	}
	replaceLatest(m.scoutLinkChanges, d2d.LinkChanged{Up: up})
	m.scoutWaiter.Wake()
}

var (
	neighborCount = observe.OptionalGauge("neighbors",
		"Neighbours that this device has chosen in its cell, if it looks for some.")
	cellAgents = observe.OptionalGauge("cell_agents",
		"Other devices that were there, in its cell, when it chose them.")
)

// NeighborsFound: the agent has chosen the agents of its cell with which it would mix.
type NeighborsFound struct {
	Neighbors   []wire.AgentID
	OtherAgents int // agents in the cell
}

// Describe implements observe.Event.
func (e NeighborsFound) Describe(d *observe.Description) {
	d.Set(neighborCount, float64(len(e.Neighbors)))
	d.Set(cellAgents, float64(e.OtherAgents))
	d.Log(observe.Info, "neighbours found", "neighbours", e.Neighbors, "agents_in_cell", e.OtherAgents)
}
