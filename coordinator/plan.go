package coordinator

import (
	"time"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// inlineTask bounds a task that rides in the announcement, in bytes; a model
// may have wire.MaxInline beside it.
const inlineTask = 8 << 10

// modelState contains the task and the present model. The
// owner and the one job that folds use it in turn, never together.
type modelState struct {
	cfg  *Config
	disk *disk
	now  func() time.Time
	// persist repeats a write until it is done, or the coordinator stops.
	persist func(what string, write func() error) error

	problem  *task.Problem[float32]
	taskBlob blob
	base     blob      // w_{i−1}; empty before the first training round
	file     blob      // of the model w_{i−1}; empty unless models are rolled out
	archived time.Time // when a model of the archive was synced last
	fresh    *present  // the model that is not in the archive yet; nil if it is
	held     *heldOut  // nil if there are no such data
	floor    float64   // the risk on the held-out data of a model that knows nothing: all its parameters are 0

	from learner.Standardization // in which the model is expressed, in a statistics round in the middle of a run
}

// setTask makes t the run's task, on disk too.
func (w *modelState) setTask(t wire.Task) error {
	blob := t.Append(nil)
	if err := w.useTask(t, blob); err != nil {
		return err
	}
	return w.persist("save the task", func() error { return w.disk.saveTask(blob) })
}

// useTask compiles the task and prepares the held-out data for it.
func (w *modelState) useTask(t wire.Task, text []byte) error {
	p, err := task.Compile[float32](t)
	if err != nil {
		return err
	}
	var held *heldOut
	floor := w.floor
	if w.cfg.Held != nil {
		if held, err = openHeld(w.cfg.Held, p); err != nil {
			return err
		}
		none, err := held.score(make([]byte, 4*p.Model.Architecture().Params()))
		if err != nil {
			return err
		}
		floor = none.Risk
	}
	w.problem, w.taskBlob, w.held, w.floor = p, newBlob(text, wire.Digest{}), held, floor
	return nil
}

// statistics plans the round that standardises the columns.
func (w *modelState) statistics() round.Plan {
	s := w.problem.Schema(wire.KindStatistics)
	return round.Plan{Kind: wire.KindStatistics, Task: w.taskBlob.refer(inlineTask), Schema: s.Hash(),
		Bytes: uint32(s.Bytes()), Codec: spec.CodecRaw}
}

// training plans a round of a run on the model w_{i−1}, after storing it in its slot, with the state of the optimiser
// that made it, if there is one.
func (w *modelState) training(run wire.RunID, version wire.ModelVersion, offset uint64, model []byte,
	state [][]float64) (round.Plan, error) {
	p := w.plan(version, offset, model)
	file, err := encodeModel(run, version, w.problem, model, p.Base.Hash, w.disk.origin)
	if err != nil {
		return round.Plan{}, err
	}
	w.rolls(&p, file)
	return p, w.keep(&present{run: run, version: version, hash: p.Base.Hash, file: file, state: w.packState(state)})
}

// keep stores the next model in its slot, and has it archived after the journal that names it.
func (w *modelState) keep(m *present) error {
	w.fresh = m
	return w.persist("save the model", func() error { return w.disk.saveSlot(m) })
}

// plan plans a round on a model that is stored.
func (w *modelState) plan(version wire.ModelVersion, offset uint64, model []byte) round.Plan {
	s := w.problem.Schema(wire.KindTraining)
	w.base = newBlob(model, s.Hash())
	t := &w.problem.Task.Training
	p := round.Plan{
		Kind: wire.KindTraining, Version: version, Offset: offset, Exchange: t.Exchange,
		StepSize: w.problem.Schedule.At(offset + 1),
		Task:     w.taskBlob.refer(inlineTask), Base: w.base.refer(wire.MaxInline),
		Schema: s.Hash(), Bytes: uint32(codec.Of[float32](t.Codec).Size(s.Len())), Codec: t.Codec,
		Endless: w.problem.Task.Mixing.Endless,
	}
	if wire.MaySendRaw(t.Codec) {
		p.Plain = uint32(s.Bytes())
	}
	return p
}

// stepsPerRound is how far t advances in a round: feddec counts local steps
// across rounds, and agents that take fewer than E_max are counted as if they
// had taken all.
func (w *modelState) stepsPerRound() uint64 {
	if w.problem.Task.Training.Exchange == spec.ExchangeGradient {
		return 1
	}
	return uint64(w.problem.Task.Training.MaxSteps)
}

// blobsOf returns the task and the model of a plan, where its announcements do not hold them.
func (w *modelState) blobsOf(p *round.Plan) []blob {
	var all []blob
	if p.Task.Present() && p.Task.Inline == nil {
		all = append(all, w.taskBlob)
	}
	if p.Kind == wire.KindTraining && p.Base.Present() && p.Base.Inline == nil {
		all = append(all, w.base)
	}
	return all
}
