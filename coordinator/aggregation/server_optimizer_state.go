package aggregation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// The state of the server optimiser and of the rule is stored with the model that it produced. If a round is aggregated
// again after a crash, it starts from the same state. A run that returns to an earlier model also restores the state
// stored with that model.

// statefulComponent is an optimiser or an aggregation rule that keeps state between rounds.
type statefulComponent struct {
	name             string
	stateVectorCount int // number of vectors in the component's state
}

// statefulComponents returns the configured stateful components in the order of their vectors: optimiser, rule.
func (w *Aggregator) statefulComponents() (all []statefulComponent) {
	r := &w.cfg.Round
	for _, k := range []statefulComponent{{r.ServerOptimizer.Name,
		len(optimizer.New(r.ServerOptimizer).StateVectorNames())},
		{r.Aggregation.Rule, len(rule.New[float32](r.Aggregation).StateVectorNames())}} {
		if k.stateVectorCount > 0 {
			all = append(all, k)
		}
	}
	return all
}

// loadServerState returns the state stored with a model: the vectors of the optimiser, then the vectors of the rule. A
// component whose state is missing or damaged starts from its initial state.
func (w *Aggregator) loadServerState(run wire.RunID, version wire.ModelVersion, hash wire.Digest) ([][]float64, error) {
	if len(w.statefulComponents()) == 0 {
		return nil, nil
	}
	var packed []byte
	m, err := w.folder.LoadModelSlot(run, version, hash)
	switch {
	case err == nil:
		packed = m.OptimizerState
	case !store.IsMissingOrDamaged(err):
		return nil, err
	}
	state, anew := w.unpackServerState(packed)
	for _, k := range anew {
		if version > 0 {
			w.cfg.Logger.Warn(
				"server optimiser or aggregation rule restarted because its saved state is missing or invalid",
				"name", k.name, "version", version, "err", cmp.Or(err, k.unpackError))
		}
	}
	return state, nil
}

// newServerState returns the initial state for models with d parameters. It is empty if no component is stateful.
func (w *Aggregator) newServerState(d int) [][]float64 {
	r := &w.cfg.Round
	return append(optimizer.NewState(optimizer.New(r.ServerOptimizer), d),
		rule.NewState(rule.New[float32](r.Aggregation), d)...)
}

// packServerState encodes the state. The name of each component precedes its vectors. The result is nil if no component
// is stateful.
func (w *Aggregator) packServerState(state [][]float64) (b []byte) {
	for _, k := range w.statefulComponents() {
		if len(state) < k.stateVectorCount {
			return nil
		}
		b = append(append(b, byte(len(k.name))), k.name...)
		for _, v := range state[:k.stateVectorCount] {
			b = wire.AppendVector(b, v)
		}
		state = state[k.stateVectorCount:]
	}
	return b
}

// componentWithLostState is a component whose stored state could not be decoded.
type componentWithLostState struct {
	statefulComponent
	unpackError error
}

// unpackServerState decodes the output of packServerState. The result begun lists the components that start from their
// initial state because their stored state is missing or damaged.
func (w *Aggregator) unpackServerState(b []byte) (state [][]float64, begun []componentWithLostState) {
	d := w.compiledTask.UpdateSchema(wire.KindTraining).ElementCount()
	parts := map[string][]byte{}
	for len(b) > 0 && len(b) > int(b[0]) {
		name := string(b[1 : 1+b[0]])
		b = b[1+len(name):]
		n := min(8*d*stateVectorCount(name), len(b))
		parts[name], b = b[:n], b[n:]
	}
	state = w.newServerState(d)
	rest := state
	for _, k := range w.statefulComponents() {
		part := parts[k.name]
		err := error(nil)
		if len(part) != 8*d*k.stateVectorCount {
			err = fmt.Errorf("the saved state of the optimiser or aggregation rule has %d bytes, want %d", len(part),
				8*d*k.stateVectorCount)
		}
		read := make([][]float64, k.stateVectorCount)
		for i := range read {
			if err == nil {
				read[i] = make([]float64, d)
				err = wire.DecodeVector(read[i], part[8*d*i:8*d*(i+1)])
			}
		}
		if err != nil {
			begun = append(begun, componentWithLostState{k, err})
		} else {
			copy(rest, read)
		}
		rest = rest[k.stateVectorCount:]
	}
	return state, begun
}

// stateVectorCount returns the number of state vectors of an optimiser or a rule, or 0 for an unknown name.
func stateVectorCount(name string) int {
	if slices.Contains(optimizer.Names(), name) {
		return len(optimizer.New(optimizer.Config{Name: name}).StateVectorNames())
	}
	return rule.StateVectorCount(name)
}

// archivedServerState returns the encoded state that is archived with a model.
func (w *Aggregator) archivedServerState(models *store.ModelFolder, version uint64, hash wire.Digest) ([]byte, error) {
	const most = 3 // maximum number of vectors of an optimiser and a rule together
	return models.OptimizerState(version, hash,
		2*(1+255)+8*w.compiledTask.UpdateSchema(wire.KindTraining).ElementCount()*most)
}

// inheritedServerState returns the state stored with the model from which the run begins, or nil if no state is stored.
func (w *Aggregator) inheritedServerState() ([][]float64, error) {
	from := w.folder.Origin
	run, version, ok := runs.ParseModelName(from.Model, 0)
	if !ok || len(w.statefulComponents()) == 0 {
		return nil, nil
	}
	models, err := w.folder.OpenModelsOfRun(run)
	if err != nil {
		return nil, err
	}
	packed, err := w.archivedServerState(models, version, from.Digest)
	if err != nil {
		if store.IsMissingOrDamaged(err) {
			err = nil
		}
		return nil, err
	}
	state, begun := w.unpackServerState(packed)
	if len(begun) == len(w.statefulComponents()) {
		return nil, nil
	}
	return state, nil
}
