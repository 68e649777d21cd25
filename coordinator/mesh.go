package coordinator

import (
	"slices"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// Mesh is the edges of a round in which agents mix, and what is to be known of them.
type Mesh struct {
	Edges        []round.Edge // in the order of (A, B)
	MixingAgents int          // that can mix
	// SecondEigenvalue is |λ̂₂| of W when no message is lost, Alpha is
	// |λ̂₂|/(1−|λ̂₂|); 1 and +Inf when the graph is not connected.
	SecondEigenvalue, EigenvalueRatio float64
	// ConnectedComponents are the connected parts, the largest first: one if all is well.
	ConnectedComponents [][]wire.AgentID
	// UnlocatedAgents are the agents that could mix and have no place, where edges come from places.
	UnlocatedAgents []wire.AgentID
}

// MeshComputed is the fact that the edges of a round are known.
type MeshComputed struct {
	Round wire.RoundID
	Mesh
	Err error // then the agents of this round do not mix
}

// meshJob is edges that are being made, or that have been.
type meshJob struct {
	agents    []round.MeshAgent
	done      bool
	mesh      Mesh
	err       error
	callbacks []func(*meshJob) // for when they are made
}

// provideMesh has the edges of a round made, unless they are there.
func (c *Coordinator) provideMesh(e round.RequestEdges) {
	c.runMeshJob(e.Agents, func(m *meshJob) {
		c.cfg.Observer.Observe(MeshComputed{e.Round, m.mesh, m.err})
		c.stepMachine(round.EdgesReady{Round: e.Round, Edges: m.mesh.Edges})
	})
}

// attestationFor is the coordinator's word about an agent's key, with which the agent proves its beacons to others;
// zero where agents do not look for neighbours.
func (c *Coordinator) attestationFor(agent wire.AgentID) (by wire.Signature) {
	key := c.keyOf(agent)
	if !c.cfg.IssuesAttestations || key == nil {
		return by
	}
	text := wire.AttestationText(c.cfg.Federation, agent, wire.SigningPublicKey(key))
	return wire.Signature(c.cfg.Signatures.Sign(c.cfg.Key, text))
}

// prepareNextMesh has edges made for the round that comes.
func (c *Coordinator) prepareNextMesh(e round.RequestEdgesAhead) {
	c.runMeshJob(e.Agents, func(*meshJob) { c.stepMachine(round.EdgesAheadReady{}) })
}

// runMeshJob makes edges beside the owner, and then goes on: the fastest weights of a large graph take seconds. They
// hang on the agents alone, so while these stay as they are, nothing is made again and nobody waits.
func (c *Coordinator) runMeshJob(agents []round.MeshAgent, next func(*meshJob)) {
	m := c.latestMeshJob
	if m == nil || !slices.EqualFunc(m.agents, agents, round.MeshAgent.Equal) {
		m = &meshJob{agents: agents}
		c.latestMeshJob = m
		c.runInBackground(func() func() {
			mesh, err := c.cfg.MakeEdges(agents)
			return func() { c.finishMeshJob(m, mesh, err) }
		})
	}
	if m.done {
		next(m)
		return
	}
	m.callbacks = append(m.callbacks, next)
}

// finishMeshJob hands the edges to the round. Edges that could not be computed are computed at the next request.
func (c *Coordinator) finishMeshJob(m *meshJob, mesh Mesh, err error) {
	if m.mesh, m.err, m.done = mesh, err, true; err != nil {
		m.mesh.Edges = nil
		if c.latestMeshJob == m {
			c.latestMeshJob = nil
		}
	}
	for _, next := range m.callbacks {
		next(m)
	}
	m.callbacks = nil
}
