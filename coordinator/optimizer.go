package coordinator

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// The state of the server's optimiser lies beside the model that it made, and is read with it: a fold that is made
// again after a crash begins from the same state, and a run that goes back to an earlier model goes back to its state.

// errOtherOptimizer is that of a state that another optimiser has left.
var errOtherOptimizer = errors.New("another optimiser made it")

// state returns the state of the optimiser with a model. One that is not there or cannot be read begins anew, as it
// does where an optimiser is configured in the middle of a run.
func (w *workbench) state(o optimizer.Optimizer, version wire.ModelVersion, hash wire.Digest) ([][]float64, error) {
	if o.Vectors() == 0 {
		return nil, nil
	}
	state, err := w.loadState(w.disk.models, uint64(version), hash)
	switch {
	case err == nil:
		return state, nil
	case !isLost(err) && !errors.Is(err, errOtherOptimizer):
		return nil, err
	case version > 0:
		w.cfg.Logger.Warn("the server's optimiser begins anew: its state with the present model is not there",
			"optimizer", w.cfg.Round.ServerOptimizer.Name, "version", version, "err", err)
	}
	return optimizer.NewState(o, len(w.base)), nil
}

// saveState stores the state of the configured optimiser with the model that it made.
func (w *workbench) saveState(version uint64, hash wire.Digest, state [][]float64) error {
	name := w.cfg.Round.ServerOptimizer.Name
	b := append([]byte{byte(len(name))}, name...)
	for _, v := range state {
		b = wire.AppendVector(b, v)
	}
	return w.persist("save the state of the server's optimiser",
		func() error { return w.disk.models.PutState(version, hash, b) })
}

// loadState returns the state that the configured optimiser has left with a model.
func (w *workbench) loadState(models *store.Models, version uint64, hash wire.Digest) ([][]float64, error) {
	name := w.cfg.Round.ServerOptimizer.Name
	o := optimizer.New(w.cfg.Round.ServerOptimizer)
	d := w.problem.Model.Architecture().Params()
	b, err := models.State(version, hash, 1+255+8*d*o.Vectors())
	if err != nil {
		return nil, err
	}
	if len(b) == 0 || len(b) < 1+int(b[0]) || string(b[1:1+b[0]]) != name {
		return nil, fmt.Errorf("state of model version %d: %w", version, errOtherOptimizer)
	}
	state := make([][]float64, o.Vectors())
	for i := range state {
		state[i] = make([]float64, d)
	}
	rest := b[1+len(name):]
	if len(rest) != 8*d*len(state) {
		return nil, fmt.Errorf("state of model version %d has %d bytes, want %d: %w", version, len(rest),
			8*d*len(state), errOtherOptimizer)
	}
	for _, v := range state {
		if err := wire.DecodeVector(v, rest[:8*d]); err != nil {
			return nil, fmt.Errorf("state of model version %d: %w: %w", version, errOtherOptimizer, err)
		}
		rest = rest[8*d:]
	}
	return state, nil
}

// inherited returns the state that the optimiser has left with the model from which the run begins; nil if it has not.
func (w *workbench) inherited() ([][]float64, error) {
	from := w.disk.origin
	run, version, ok := parseModelName(from.Model, 0)
	if !ok || optimizer.New(w.cfg.Round.ServerOptimizer).Vectors() == 0 {
		return nil, nil
	}
	models, err := w.disk.modelsOf(run)
	if err != nil {
		return nil, err
	}
	state, err := w.loadState(models, version, from.Digest)
	if err != nil && !isLost(err) && !errors.Is(err, errOtherOptimizer) {
		return nil, err
	}
	return state, nil
}
