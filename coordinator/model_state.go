package coordinator

import (
	"time"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/runs"
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
	cfg         *Config
	stateFolder *runs.Folder
	now         func() time.Time
	// retryWrite repeats a write until it is done, or the coordinator stops.
	retryWrite func(what string, write func() error) error

	compiledTask      *task.CompiledTask[float32]
	taskBlob          publish.Blob
	baseModelBlob     publish.Blob    // w_{i−1}; empty before the first training round
	rolloutFile       publish.Blob    // of the model w_{i−1}; empty unless models are rolled out
	lastArchiveSyncAt time.Time       // when a model of the archive was synced last
	unarchivedModel   *runs.SlotModel // the model that is not in the archive yet; nil if it is
	heldOut           *heldOut        // nil if there are no such data
	// the risk on the held-out data of a model that knows nothing: all its parameters are 0
	zeroModelRisk float64
	riskMonitor   riskMonitor

	// in which the model is expressed, in a statistics round in the middle of a run
	previousStandardization learner.Standardization
}

// setTask makes t the run's task, on disk too.
func (w *modelState) setTask(t wire.Task) error {
	blob := t.Append(nil)
	if err := w.prepareTask(t, blob); err != nil {
		return err
	}
	return w.retryWrite("save the task", func() error { return w.stateFolder.SaveTask(blob) })
}

// prepareTask compiles the task and prepares the held-out data for it.
func (w *modelState) prepareTask(t wire.Task, text []byte) error {
	p, err := task.Compile[float32](t)
	if err != nil {
		return err
	}
	var held *heldOut
	floor := w.zeroModelRisk
	if w.cfg.HeldOutSource != nil {
		if held, err = openHeld(w.cfg.HeldOutSource, p); err != nil {
			return err
		}
		none, err := held.score(make([]byte, 4*p.Model.Architecture().Params()))
		if err != nil {
			return err
		}
		floor = none.Risk
	}
	w.compiledTask, w.taskBlob, w.heldOut, w.zeroModelRisk = p, publish.NewBlob(text, wire.Digest{}), held, floor
	return nil
}

// planStatisticsRound plans the round that standardises the columns.
func (w *modelState) planStatisticsRound() round.Plan {
	s := w.compiledTask.Schema(wire.KindStatistics)
	return round.Plan{Kind: wire.KindStatistics, Task: w.taskBlob.AnnouncementRef(inlineTask), Schema: s.Hash(),
		Bytes: uint32(s.Bytes()), Codec: spec.CodecRaw}
}

// storeAndPlanTraining plans a round of a run on the model w_{i−1}, after storing it in its slot, with the state of the
// optimiser that made it, if there is one.
func (w *modelState) storeAndPlanTraining(run wire.RunID, version wire.ModelVersion, offset uint64, model []byte,
	state [][]float64) (round.Plan, error) {
	p := w.planTraining(version, offset, model)
	file, err := encodeModel(run, version, w.compiledTask, model, p.Base.Hash, w.stateFolder.Origin)
	if err != nil {
		return round.Plan{}, err
	}
	w.addRolloutFile(&p, file)
	return p, w.storeNextModel(&runs.SlotModel{Run: run, Version: version, Hash: p.Base.Hash, SafetensorsPieces: file,
		OptimizerState: w.packState(state)})
}

// storeNextModel stores the next model in its slot, and has it archived after the journal that names it.
func (w *modelState) storeNextModel(m *runs.SlotModel) error {
	w.unarchivedModel = m
	return w.retryWrite("save the model", func() error { return w.stateFolder.SaveSlot(m) })
}

// planTraining plans a round on a model that is stored.
func (w *modelState) planTraining(version wire.ModelVersion, offset uint64, model []byte) round.Plan {
	s := w.compiledTask.Schema(wire.KindTraining)
	w.baseModelBlob = publish.NewBlob(model, s.Hash())
	t := &w.compiledTask.Task.Training
	p := round.Plan{
		Kind: wire.KindTraining, Version: version, Offset: offset, Exchange: t.Exchange,
		StepSize: w.compiledTask.Schedule.At(offset + 1),
		Task:     w.taskBlob.AnnouncementRef(inlineTask), Base: w.baseModelBlob.AnnouncementRef(wire.MaxInline),
		Schema: s.Hash(), Bytes: uint32(codec.ForName[float32](t.Codec).Size(s.Len())), Codec: t.Codec,
		Endless: w.compiledTask.Task.Mixing.EndlessBlocks,
	}
	if wire.MayFallBackToRaw(t.Codec) {
		p.Plain = uint32(s.Bytes())
	}
	return p
}

// stepsPerRound is how far t advances in a round: feddec counts local steps
// across rounds, and agents that take fewer than E_max are counted as if they
// had taken all.
func (w *modelState) stepsPerRound() uint64 {
	if w.compiledTask.Task.Training.Exchange == spec.ExchangeGradient {
		return 1
	}
	return uint64(w.compiledTask.Task.Training.MaxSteps)
}

// nonInlineBlobsOfPlan returns the task and the model of a plan, where its announcements do not hold them.
func (w *modelState) nonInlineBlobsOfPlan(p *round.Plan) []publish.Blob {
	var all []publish.Blob
	if p.Task.Present() && p.Task.Inline == nil {
		all = append(all, w.taskBlob)
	}
	if p.Kind == wire.KindTraining && p.Base.Present() && p.Base.Inline == nil {
		all = append(all, w.baseModelBlob)
	}
	return all
}

// syncArchive is how often a model of the archive is synced at most. The system writes the others by itself, soon: of
// models that replace each other faster a power cut takes a few, and not the present one, which its slot has.
const syncArchive = 10 * time.Second

// archive stores a model, and the state of the optimiser with it, among those of its run.
func (w *modelState) archive(m *runs.SlotModel) error {
	now := w.now()
	durable := m.MustBeDurable || now.Sub(w.lastArchiveSyncAt) >= syncArchive
	if m.OptimizerState != nil {
		if err := w.stateFolder.Models.PutOptimizerState(uint64(m.Version), m.Hash, m.OptimizerState,
			durable); err != nil {
			return err
		}
	}
	err := w.stateFolder.SaveModel(m, durable, w.cfg.Logger)
	if err == nil && durable {
		w.lastArchiveSyncAt = now
	}
	return err
}

// archivePendingModel puts the present model into the archive if the process before has not: what begins from it finds
// it there.
func (w *modelState) archivePendingModel() error {
	m := w.unarchivedModel
	if w.unarchivedModel = nil; m == nil {
		return nil
	}
	return w.archive(m)
}
