package coordinator

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// inlineTask bounds a task that rides in the announcement, in bytes; a model
// may have wire.MaxInline beside it.
const inlineTask = 8 << 10

// workbench holds what the rounds work on: the task and the present model. The
// owner and the one job that folds use it in turn, never together.
type workbench struct {
	cfg  *Config
	disk *disk
	// persist repeats a write until it is done, or the coordinator stops.
	persist func(what string, write func() error) error

	problem  *task.Problem[float32]
	taskBlob blob
	base     []float32 // w_{i−1}; nil before the first training round
	baseBlob blob
	held     *learner.Samples[float32]
}

// resume returns the record of the folder's run, or of a new one.
func (c *Coordinator) resume() (round.Record, error) {
	record, found, err := c.disk.loadRecord()
	if err != nil {
		return record, fmt.Errorf("%w; move the state folder away to begin anew", err)
	}
	if !found || c.cfg.NewRun {
		return c.begin(record.Run)
	}
	if err := c.disk.openModels(record.Run); err != nil {
		return record, err
	}
	return record, c.work.restore(record.Plan)
}

// begin plans a new run, with a larger id than the one before.
func (c *Coordinator) begin(before wire.RunID) (round.Record, error) {
	record := round.Record{Run: max(wire.RunID(time.Now().UnixMilli()), before+1), Phase: round.CoordinatorIdle}
	err := c.disk.openModels(record.Run)
	if err == nil {
		err = c.work.setTask(c.cfg.Task)
	}
	if err == nil && c.cfg.Standardize {
		record.Plan = c.work.statistics()
	} else if err == nil {
		record.Plan, err = c.work.training(0, 0, c.work.problem.Initial(c.cfg.Round.Seed))
	}
	if err == nil {
		err = c.disk.removeSpoolsBut(0)
	}
	return record, err
}

// restore takes up the task and model of a journaled plan.
func (w *workbench) restore(p round.Plan) error {
	// Before the statistics are folded the task is the configured one; on disk
	// may be the one that a fold has made and that the journal does not know yet.
	blob, err := w.cfg.Task.Append(nil), error(nil)
	if sha256.Sum256(blob) != p.Task.Hash {
		if blob, err = w.disk.loadTask(); err != nil {
			return fmt.Errorf("the run's task: %w", err)
		}
	}
	if sha256.Sum256(blob) != p.Task.Hash {
		return fmt.Errorf("the task in the state folder is not the one that the run stands on; begin a new run")
	}
	t, err := wire.DecodeTask(blob)
	if err != nil {
		return err
	}
	plain := t
	plain.Standardization = wire.Standardization{}
	if !bytes.Equal(plain.Append(nil), w.cfg.Task.Append(nil)) {
		return ErrOtherTask
	}
	if err := w.useTask(t, blob); err != nil {
		return err
	}
	if p.Kind == wire.KindStatistics {
		return nil
	}
	// A model beyond the journal is of a fold that was cut short: it is made again.
	if err := w.disk.models.RemoveAbove(uint64(p.Version)); err != nil {
		return err
	}
	s := w.problem.Schema(wire.KindTraining)
	base, data, err := w.disk.loadModel(p.Version, p.Base.Hash, s)
	if err != nil {
		return err
	}
	w.base, w.baseBlob = base, newBlob(data, s.Hash())
	return nil
}

// setTask makes t the run's task, on disk too.
func (w *workbench) setTask(t wire.Task) error {
	blob := t.Append(nil)
	if err := w.useTask(t, blob); err != nil {
		return err
	}
	return w.persist("save the task", func() error { return w.disk.saveTask(blob) })
}

// useTask compiles the task and prepares the held-out data for it.
func (w *workbench) useTask(t wire.Task, data []byte) error {
	p, err := task.Compile[float32](t)
	if err != nil {
		return err
	}
	var held *learner.Samples[float32]
	if w.cfg.Held != nil {
		if held, err = w.cfg.Held.Load(t.Features, t.Target); err == nil {
			err = p.Prepare(held)
		}
		if err != nil {
			return fmt.Errorf("the held-out data: %w", err)
		}
	}
	w.problem, w.taskBlob, w.held = p, newBlob(data, wire.Digest{}), held
	return nil
}

// statistics plans the round that standardises the columns.
func (w *workbench) statistics() round.Plan {
	s := w.problem.Schema(wire.KindStatistics)
	return round.Plan{Kind: wire.KindStatistics, Task: w.taskBlob.refer(inlineTask), Schema: s.Hash(), Bytes: uint32(s.Bytes())}
}

// training plans a round on the model w_{i−1}, after storing it.
func (w *workbench) training(version wire.ModelVersion, offset uint64, model []float32) (round.Plan, error) {
	data := wire.AppendVector(nil, model)
	file, err := encodeModel(version, w.problem, data)
	if err != nil {
		return round.Plan{}, err
	}
	s := w.problem.Schema(wire.KindTraining)
	w.base, w.baseBlob = model, newBlob(data, s.Hash())
	t := &w.problem.Task.Training
	p := round.Plan{
		Kind: wire.KindTraining, Version: version, Offset: offset, Exchange: t.Exchange, StepSize: w.problem.Schedule.At(offset + 1),
		Task: w.taskBlob.refer(inlineTask), Base: w.baseBlob.refer(wire.MaxInline),
		Schema: s.Hash(), Bytes: uint32(s.Bytes()), Endless: w.problem.Task.Mixing.Endless,
	}
	err = w.persist("save the model", func() error { return w.disk.models.Put(uint64(version), p.Base.Hash, file) })
	if err == nil && w.cfg.KeepModels > 0 {
		err = w.persist("remove old models", func() error { return w.disk.models.Prune(w.cfg.KeepModels) })
	}
	return p, err
}

// stepsPerRound is how far t advances in a round: feddec counts local steps
// across rounds, and agents that take fewer than E_max are counted as if they
// had taken all.
func (w *workbench) stepsPerRound() uint64 {
	if w.problem.Task.Training.Exchange == wire.ExchangeGradient {
		return 1
	}
	return uint64(w.problem.Task.Training.MaxSteps)
}

// blobs returns what an announcement names and does not hold.
func (w *workbench) blobs(a *wire.Announcement) []blob {
	var all []blob
	if a.Task.Present() && a.Task.Inline == nil {
		all = append(all, w.taskBlob)
	}
	if a.Base.Present() && a.Base.Inline == nil {
		all = append(all, w.baseBlob)
	}
	return all
}
