package sim

import (
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/wire"
)

// State is where a run stands after a round, to be followed by hand: the model, and by their names what the server and
// the agents keep for the next rounds.
type State struct {
	Round int       `json:"round"` // 0 = the start; of feddec t of z^t, from 1
	W     []float64 `json:"w"`     // w_i; of feddec the mean of all z_k
	// m and v of the server's optimiser, centre of centred clipping; of feddec w, which the server sent last.
	Server map[string][]float64 `json:"server"`
	// By an agent's name, its number where it has none: residual, what top_k has not sent; own, its own tensors; v, its
	// model of ditto; z of feddec. What an agent does not have yet is left out.
	Agents map[string]map[string][]float64 `json:"agents"`
}

func widened[T learner.Float](v []T) []float64 {
	wide := make([]float64, len(v))
	for j, x := range v {
		wide[j] = float64(x)
	}
	return wide
}

// addAgentState names what an agent keeps, if it has any of it.
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
