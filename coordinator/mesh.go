package coordinator

import (
	"slices"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// Mesh is the edges of a round in which agents mix, and what is to be known of them.
type Mesh struct {
	Edges  []round.Edge // in the order of (A, B)
	Agents int          // that can mix
	// SecondEigenvalue is |λ̂₂| of W when no message is lost, Alpha is
	// |λ̂₂|/(1−|λ̂₂|); 1 and +Inf when the graph is not connected.
	SecondEigenvalue, Alpha float64
	// Parts are the connected parts, the largest first: one if all is well.
	Parts [][]wire.AgentID
	// Nowhere are the agents that could mix and have no place, where edges come from places.
	Nowhere []wire.AgentID
}

// MeshMade is the fact that the edges of a round are known.
type MeshMade struct {
	Round wire.RoundID
	Mesh
	Err error // then the agents of this round do not mix
}

// meshing is edges that are being made, or that have been.
type meshing struct {
	of   []round.MeshAgent
	done bool
	mesh Mesh
	err  error
	next []func(*meshing) // for when they are made
}

// mesh has the edges of a round made, unless they are there.
func (c *Coordinator) mesh(e round.Mesh) {
	c.edgesOf(e.Agents, func(m *meshing) {
		c.cfg.Observer.Observe(MeshMade{e.Round, m.mesh, m.err})
		c.step(round.Meshed{Round: e.Round, Edges: m.mesh.Edges})
	})
}

// wordFor is the coordinator's word about an agent's key, with which the agent proves its beacons to others; zero where
// agents do not look for neighbours.
func (c *Coordinator) wordFor(agent wire.AgentID) (by wire.Signed) {
	key := c.keyOf(agent)
	if !c.cfg.Words || key == nil {
		return by
	}
	text := wire.AttestationText(c.cfg.Federation, agent, wire.SignKey(key))
	return wire.Signed(c.cfg.Signatures.Sign(c.cfg.Key, text))
}

// meshAhead has edges made for the round that comes.
func (c *Coordinator) meshAhead(e round.MeshAhead) {
	c.edgesOf(e.Agents, func(*meshing) { c.step(round.MeshedAhead{}) })
}

// edgesOf makes edges beside the owner, and then goes on: the fastest weights of a large graph take seconds. They hang
// on the agents alone, so while these stay as they are, nothing is made again and nobody waits.
func (c *Coordinator) edgesOf(agents []round.MeshAgent, next func(*meshing)) {
	m := c.meshed
	if m == nil || !slices.EqualFunc(m.of, agents, round.MeshAgent.Equal) {
		m = &meshing{of: agents}
		c.meshed = m
		c.start(func() func() {
			mesh, err := c.cfg.Edges(agents)
			return func() { c.made(m, mesh, err) }
		})
	}
	if m.done {
		next(m)
		return
	}
	m.next = append(m.next, next)
}

// made goes on with edges. Those that could not be made are made when they are asked for again.
func (c *Coordinator) made(m *meshing, mesh Mesh, err error) {
	if m.mesh, m.err, m.done = mesh, err, true; err != nil {
		m.mesh.Edges = nil
		if c.meshed == m {
			c.meshed = nil
		}
	}
	for _, next := range m.next {
		next(m)
	}
	m.next = nil
}
