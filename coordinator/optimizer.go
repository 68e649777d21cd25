package coordinator

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// The state of the server's optimiser lies with the model that it made, in its slot and in the archive: a round that is
// closed again after a crash begins from the same state, and a run that goes back to an earlier model goes back to its
// state.

// errOtherOptimizer is that of a state that another optimiser has left.
var errOtherOptimizer = errors.New("another optimiser made it")

// state returns the state of the optimiser with a model. One that is not there or cannot be read begins anew, as it
// does where an optimiser is configured in the middle of a run.
func (w *workbench) state(o optimizer.Optimizer, run wire.RunID, version wire.ModelVersion, hash wire.Digest) (
	[][]float64, error) {
	if o.Vectors() == 0 {
		return nil, nil
	}
	var state [][]float64
	m, err := w.disk.loadSlot(run, version, hash)
	if err == nil && m.state == nil {
		err = store.ErrNoRecord
	}
	if err == nil {
		state, err = w.unpackState(m.state, uint64(version))
	}
	switch {
	case err == nil:
		return state, nil
	case !isLost(err) && !errors.Is(err, errOtherOptimizer):
		return nil, err
	case version > 0:
		w.cfg.Logger.Warn("the server's optimiser begins anew: its state with the present model is not there",
			"optimizer", w.cfg.Round.ServerOptimizer.Name, "version", version, "err", err)
	}
	return optimizer.NewState(o, len(w.base.data)/4), nil
}

// packState names the configured optimiser before its state; nil for one without.
func (w *workbench) packState(state [][]float64) []byte {
	if state == nil {
		return nil
	}
	name := w.cfg.Round.ServerOptimizer.Name
	b := append([]byte{byte(len(name))}, name...)
	for _, v := range state {
		b = wire.AppendVector(b, v)
	}
	return b
}

// archivedState returns what packState made of the state that came with a model of the archive.
func (w *workbench) archivedState(models *store.Models, version uint64, hash wire.Digest) ([]byte, error) {
	o := optimizer.New(w.cfg.Round.ServerOptimizer)
	return models.State(version, hash, 1+255+8*w.problem.Model.Architecture().Params()*o.Vectors())
}

// unpackState returns the state that the configured optimiser has left with a model.
func (w *workbench) unpackState(b []byte, version uint64) ([][]float64, error) {
	name := w.cfg.Round.ServerOptimizer.Name
	o := optimizer.New(w.cfg.Round.ServerOptimizer)
	d := w.problem.Model.Architecture().Params()
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
	var state [][]float64
	packed, err := w.archivedState(models, version, from.Digest)
	if err == nil {
		state, err = w.unpackState(packed, version)
	}
	if err != nil && !isLost(err) && !errors.Is(err, errOtherOptimizer) {
		return nil, err
	}
	return state, nil
}
