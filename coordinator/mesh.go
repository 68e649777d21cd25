package coordinator

import (
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

// mesh makes the edges beside the owner: the fastest weights of a large graph take seconds.
func (c *Coordinator) mesh(e round.Mesh) {
	c.start(func() func() {
		m, err := c.cfg.Edges(e.Agents)
		if err != nil {
			m.Edges = nil
		}
		return func() {
			c.cfg.Observer.Observe(MeshMade{e.Round, m, err})
			c.step(round.Meshed{Round: e.Round, Edges: m.Edges})
		}
	})
}
