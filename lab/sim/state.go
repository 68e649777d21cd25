package sim

import (
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/wire"
)

// State is the state of a run after a round: the model, the state of the server, and the state of each agent. Users can
// compare it with manual calculations.
type State struct {
	Round int       `json:"round"` // number of the round, 0 at the start; for FedDec the iteration, 1 at the start
	W     []float64 `json:"w"`     // current model; for FedDec the mean of all agents' models
	// Server contains the state of the server: m and v of the optimiser, the centre of centred clipping, or the last
	// model w of FedDec.
	Server map[string][]float64 `json:"server"`
	// Agents contains the state of each agent by its name or number: the residual of the codec top_k, the personal
	// tensors, the personal model v of Ditto, or the model z of FedDec. State that does not exist yet is omitted.
	Agents map[string]map[string][]float64 `json:"agents"`
}

func widened[T learner.Float](v []T) []float64 {
	wide := make([]float64, len(v))
	for j, x := range v {
		wide[j] = float64(x)
	}
	return wide
}

// addAgentState adds a named vector to the state of an agent. addAgentState does nothing if the vector is empty.
func addAgentState[T learner.Float](into *State, agent wire.AgentID, name string, v []T) {
	switch of := into.Agents[string(agent)]; {
	case len(v) == 0:
	case of == nil:
		into.Agents[string(agent)] = map[string][]float64{name: widened(v)}
	default:
		of[name] = widened(v)
	}
}

func (s *server[T]) keeps(into *State) {
	for i, name := range s.optimizer.StateVectorNames() {
		into.Server[name] = slices.Clone(s.state[i])
	}
	for i, name := range s.rule.StateVectorNames() {
		into.Server[name] = slices.Clone(s.kept[i])
	}
	if s.feedback != nil {
		for k, residual := range s.feedback.kept {
			addAgentState(into, s.name(k), "residual", residual)
		}
	}
}

func (p *personalModels[T]) keeps(into *State) {
	name := "own"
	if p.e.Personal.UsesDitto() {
		name = "v"
	}
	for k, own := range p.own {
		addAgentState(into, p.name(k), name, own)
	}
}

func (f *fedavg[T]) keeps(into *State) {
	f.server.keeps(into)
	f.own.keeps(into)
}

func (f *feddec[T]) keeps(into *State) {
	f.server.keeps(into)
	into.Server["w"] = widened(f.last)
	for k, z := range f.z {
		addAgentState(into, f.name(k), "z", z)
	}
}
