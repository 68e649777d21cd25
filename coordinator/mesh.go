package coordinator

import (
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// Mesh is the edges of a round in which agents mix, with the properties of their graph.
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

// meshJob computes the edges between agents.
type meshJob struct {
	agents    []round.MeshAgent
	done      bool
	mesh      Mesh
	err       error
	callbacks []func(*meshJob) // called when it is done
}

// attestationFor returns the coordinator's signature of an agent's key, with which the agent proves its beacons to
// others; zero if agents do not look for neighbours.
func (c *Coordinator) attestationFor(agent wire.AgentID) (by wire.Signature) {
	key := c.devices.Key(agent)
	if !c.cfg.IssuesAttestations || key == nil {
		return by
	}
	text := wire.AttestationText(c.cfg.Federation, agent, wire.SigningPublicKey(key))
	return wire.Signature(c.cfg.Signatures.Sign(c.cfg.Key, text))
}

// runMeshJob computes the edges between agents beside the owner, and then calls next: the fastest weights of a large
// graph take seconds. The edges depend on the agents only, so they are not computed again while the agents are the
// same.
func (c *Coordinator) runMeshJob(agents []round.MeshAgent, next func(*meshJob)) {
	m := c.latestMeshJob
	if m == nil || !slices.EqualFunc(m.agents, agents, round.MeshAgent.Equal) {
		m = &meshJob{agents: agents}
		c.latestMeshJob = m
		c.runInBackground(func() func() {
			mesh, err := c.cfg.MakeEdges(agents)
			return func() {
				if m.mesh, m.err, m.done = mesh, err, true; err != nil { // the next request tries again
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
		})
	}
	if m.done {
		next(m)
		return
	}
	m.callbacks = append(m.callbacks, next)
}

var (
	meshAgents = observe.Gauge("mesh_agents",
		"Agents that can mix with neighbours, in the last round in which agents mix.")
	meshEdges = observe.Gauge("mesh_edges", "Edges between them.")
	meshParts = observe.Gauge("mesh_parts",
		"Connected parts of their graph; with more than one, the parts mix each by itself.")
	meshEigenvalue = observe.OptionalGauge("mesh_second_eigenvalue",
		"|λ₂| of E[WWᵀ] when no message is lost; 1 when the graph is not connected.")
	meshEigenvalueRatio = observe.OptionalGauge("mesh_alpha",
		"|λ₂|/(1−|λ₂|), the connectivity of feddec; no series when the graph is not connected, since it is "+
			"infinite.")
)

// MeshComputed: the edges of a round are known.
type MeshComputed struct {
	Round wire.RoundID
	Mesh
	Err error // if set, the agents do not mix in this round
}

// Describe implements observe.Event.
func (e MeshComputed) Describe(d *observe.Description) {
	const errorCondition, placesCondition = "mesh", "agents without a place"
	d.Set(meshAgents, float64(e.MixingAgents))
	d.Set(meshEdges, float64(len(e.Edges)))
	d.Set(meshParts, float64(len(e.ConnectedComponents)))
	d.Set(meshEigenvalue, e.SecondEigenvalue)
	d.Set(meshEigenvalueRatio, e.EigenvalueRatio)
	if e.Err != nil {
		d.Log(observe.Error, "no edges between the agents, so they do not mix in this round", "round", e.Round,
			"err", e.Err)
		d.Fail(errorCondition, fmt.Sprintf("there are no edges between the agents, so they do not mix: %v", e.Err),
			"correct mesh.edges and the keys beside it with `coordinator task set KEY=VALUE`")
		return
	}
	d.Resolve(errorCondition)
	if len(e.UnlocatedAgents) > 0 {
		d.Log(observe.Warn, "agents without a place cannot mix", "round", e.Round, "agents", e.UnlocatedAgents)
		d.Fail(placesCondition, "agents without a place cannot mix: "+observe.JoinNames(e.UnlocatedAgents),
			"set d2d.place at these agents, or take the edges from mesh.file with mesh.edges: file")
	} else {
		d.Resolve(placesCondition)
	}
	if len(e.ConnectedComponents) > 1 {
		d.Log(observe.Warn, "graph of the agents is not connected: each part mixes by itself", "round", e.Round,
			"parts", e.ConnectedComponents)
	}
	d.Log(observe.Info, "agents mix", "round", e.Round, "agents", e.MixingAgents, "edges", len(e.Edges),
		"second_eigenvalue", observe.Rounded(e.SecondEigenvalue), "alpha", observe.Rounded(e.EigenvalueRatio))
}
