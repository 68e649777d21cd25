// Package meshplan plans which agents mix with each other in a round.
package meshplan

import (
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// MixingGraph contains the edges of a round with mixing, and properties of their graph.
type MixingGraph struct {
	Edges        []round.MixingEdge // edges in the order of (A, B)
	MixingAgents int                // number of agents that can mix with neighbours
	// SecondEigenvalue is the absolute second eigenvalue |λ̂₂| of the weight matrix W if no message is lost, and
	// EigenvalueRatio is |λ̂₂|/(1−|λ̂₂|). They are 1 and +Inf if the graph is disconnected.
	SecondEigenvalue, EigenvalueRatio float64
	// ConnectedComponents are the connected components of the graph, largest first.
	ConnectedComponents [][]wire.AgentID
	// UnlocatedAgents are agents that cannot mix because their location is unknown. It is set only if edges derive from
	// locations.
	UnlocatedAgents []wire.AgentID
}

// Planner computes the edges between agents. All methods must be called on the owner goroutine.
type Planner struct {
	loop          *host.EventLoop
	makeEdges     func(agents []round.MixingAgent) (MixingGraph, error)
	latestPlanJob *planJob // newest request; nil before the first request and after a failure
}

// planJob is the computation of the edges between a set of agents.
type planJob struct {
	agents           []round.MixingAgent
	done             bool
	graph            MixingGraph
	err              error
	waitingCallbacks []func(MixingGraph, error) // callbacks to call when the job is done
}

// NewPlanner returns a Planner. It calls makeEdges on a separate goroutine; see package edges.
func NewPlanner(loop *host.EventLoop, makeEdges func(agents []round.MixingAgent) (MixingGraph, error)) *Planner {
	return &Planner{loop: loop, makeEdges: makeEdges}
}

// PlanMesh computes the edges between agents and then calls next. The computation runs on a separate goroutine, because
// the fastest weights of a large graph take seconds. The result is cached as long as the agents are the same. After an
// error the graph has no edges.
func (p *Planner) PlanMesh(agents []round.MixingAgent, next func(MixingGraph, error)) {
	j := p.latestPlanJob
	if j == nil || !slices.EqualFunc(j.agents, agents, round.MixingAgent.Equal) {
		j = &planJob{agents: agents}
		p.latestPlanJob = j
		p.loop.GoThen(func() func() {
			graph, err := p.makeEdges(agents)
			return func() {
				if j.graph, j.err, j.done = graph, err, true; err != nil {
					j.graph.Edges = nil
					if p.latestPlanJob == j { // the next request must compute the edges again
						p.latestPlanJob = nil
					}
				}
				for _, next := range j.waitingCallbacks {
					next(j.graph, j.err)
				}
				j.waitingCallbacks = nil
			}
		})
	}
	if j.done {
		next(j.graph, j.err)
		return
	}
	j.waitingCallbacks = append(j.waitingCallbacks, next)
}

// Metrics lists the metrics of the events in this package.
var Metrics = []*observe.Metric{meshAgents, meshEdges, meshParts, meshEigenvalue, meshEigenvalueRatio}

var (
	meshAgents = observe.Gauge("mesh_agents",
		"Agents that could exchange parameters with neighbours in the last round with mixing.")
	meshEdges = observe.Gauge("mesh_edges", "Number of edges in the graph of neighbours in the last round with mixing.")
	meshParts = observe.Gauge("mesh_parts",
		"Number of connected components of the graph of neighbours. Parameters spread only within a component.")
	meshEigenvalue = observe.OptionalGauge("mesh_second_eigenvalue",
		"Second-largest eigenvalue |λ₂| of E[WWᵀ], where W is the mixing matrix, if no message is lost. 1 if the "+
			"graph is not connected.")
	meshEigenvalueRatio = observe.OptionalGauge("mesh_alpha",
		"Connectivity |λ₂|/(1−|λ₂|) of the graph of neighbours; lower is better connected. Absent if the graph is "+
			"not connected.")
)

// MeshValue is the name under which the status contains the latest *Mesh.
const MeshValue = "mesh"

// Mesh is the part of the status that describes the graph of the agents that mix with neighbours.
type Mesh struct {
	Agents              int      `json:"agents"`
	Edges               int      `json:"edges"`
	ConnectedComponents int      `json:"parts"`
	SecondEigenvalue    *float64 `json:"second_eigenvalue,omitempty"`
	EigenvalueRatio     *float64 `json:"alpha,omitempty"`
}

// MeshComputed reports that the edges of a round were computed.
type MeshComputed struct {
	Round wire.RoundID
	MixingGraph
	Err error // if not nil, the agents do not mix in this round
}

// Describe implements observe.Event.
func (e MeshComputed) Describe(d *observe.EventDescription) {
	const errorCondition, placesCondition = "mesh", "agents without a place"
	d.SetGauge(meshAgents, float64(e.MixingAgents))
	d.SetGauge(meshEdges, float64(len(e.Edges)))
	d.SetGauge(meshParts, float64(len(e.ConnectedComponents)))
	d.SetGauge(meshEigenvalue, e.SecondEigenvalue)
	d.SetGauge(meshEigenvalueRatio, e.EigenvalueRatio)
	d.ShowStatusValue(MeshValue, &Mesh{e.MixingAgents, len(e.Edges), len(e.ConnectedComponents),
		observe.FiniteOrNil(e.SecondEigenvalue), observe.FiniteOrNil(e.EigenvalueRatio)})
	if e.Err != nil {
		d.Log(observe.Error, "cannot compute the graph of neighbours; agents do not exchange parameters in this round",
			"round", e.Round,
			"err", e.Err)
		d.RaiseCondition(errorCondition, fmt.Sprintf(
			"the graph of neighbours cannot be computed, so agents do not exchange parameters: %v",
			e.Err),
			"correct mesh.edges and related keys with `coordinator task set KEY=VALUE`")
		return
	}
	d.ResolveCondition(errorCondition)
	if len(e.UnlocatedAgents) > 0 {
		d.Log(observe.Warn, "agents without a location (d2d.place) have no neighbours", "round", e.Round, "agents",
			e.UnlocatedAgents)
		d.RaiseCondition(placesCondition,
			"agents without a location (d2d.place) have no neighbours: "+observe.JoinNames(e.UnlocatedAgents),
			"set d2d.place on these agents, or set mesh.edges to file and list the edges in mesh.file")
	} else {
		d.ResolveCondition(placesCondition)
	}
	if len(e.ConnectedComponents) > 1 {
		d.Log(observe.Warn, "the graph of neighbours is not connected; parameters spread only within each part",
			"round",
			e.Round,
			"parts", e.ConnectedComponents)
	}
	d.Log(observe.Info, "mixing graph computed", "round", e.Round, "agents", e.MixingAgents, "edges", len(e.Edges),
		"second_eigenvalue", observe.RoundToFourDigits(e.SecondEigenvalue), "alpha",
		observe.RoundToFourDigits(e.EigenvalueRatio))
}
