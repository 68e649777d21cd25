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

// mesh makes the edges beside the owner: the fastest weights of a large graph take seconds. They hang on the agents
// alone, so while these stay as they are, nothing is made again and no round waits.
func (c *Coordinator) mesh(e round.Mesh) {
	if c.meshed != nil && slices.EqualFunc(c.meshedOf, e.Agents, sameEnds) {
		c.tellMesh(e.Round, *c.meshed, nil)
		return
	}
	c.start(func() func() {
		m, err := c.cfg.Edges(e.Agents)
		if err != nil {
			m.Edges = nil
		}
		return func() {
			if c.meshed, c.meshedOf = &m, e.Agents; err != nil {
				c.meshed = nil
			}
			c.tellMesh(e.Round, m, err)
		}
	})
}

func (c *Coordinator) tellMesh(r wire.RoundID, m Mesh, err error) {
	c.cfg.Observer.Observe(MeshMade{r, m, err})
	c.step(round.Meshed{Round: r, Edges: m.Edges})
}

// sameEnds reports whether the edges of an agent follow from the same.
func sameEnds(a, b round.MeshAgent) bool {
	return a.ID == b.ID && a.Mixes == b.Mixes && a.Place == b.Place && slices.Equal(a.Neighbors, b.Neighbors)
}
