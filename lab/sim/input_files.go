package sim

import (
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/spec"
)

// Read reads the files that the experiment names: quadratic risks with the local steps and weights of the agents, and
// lists of participants. Read must be called before Validate. Errors are of type [*spec.FieldError].
func (e *Experiment) Read() error {
	if path := e.Data.Quadratics; path != "" {
		f, err := data.ReadForms(path)
		if err == nil && e.Agents != 0 && e.Agents != len(f.Agents) {
			err = fmt.Errorf("has %d agents, but the key agents is %d: correct or remove the key", len(f.Agents),
				e.Agents)
		}
		if err != nil {
			return &spec.FieldError{Key: "data.quadratics", Problem: fmt.Sprintf("%s: %v", path, err)}
		}
		e.Data.Kind, e.Data.Forms, e.Agents, e.BatchSize = data.KindQuadratics, f, len(f.Agents), Each(0)
		if steps := f.LocalSteps(); steps != nil {
			e.LocalSteps = each(steps)
		}
		if weights := f.Weights(); weights != nil {
			e.Weights = each(weights)
		}
	}
	if e.Participants.File == "" {
		return nil
	}
	if e.Agents == 0 {
		return &spec.FieldError{Key: "participants", Problem: "is a file, which requires the key agents"}
	}
	return e.Participants.read(e.Agents, e.folds())
}

// each returns a PerAgent with one number if all values are equal. Otherwise it returns a PerAgent with one number per
// agent.
func each(values []float64) PerAgent {
	if slices.Max(values) == slices.Min(values) {
		values = values[:1]
	}
	return Each(values...)
}

// folds returns the number of server aggregations in a run.
func (e *Experiment) folds() (n int) {
	if e.Algorithm != spec.FedDec {
		return e.Rounds
	}
	for t := 1; t < e.Rounds && e.Mixing.ServerEvery > 0; t++ {
		if e.Mixing.isServerIteration(t) {
			n++
		}
	}
	return n
}
