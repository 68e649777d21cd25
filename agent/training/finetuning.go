package training

import (
	"context"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// finetuning adapts a model to the device by local steps before the model is used for predictions.
type finetuning struct {
	task       wire.Task
	rows       *learner.Samples[float32]
	rowsErr    func() error // returns an error if the rows could not be read
	rng        *rand.Rand
	stepOffset uint64
	lockHandle *lockHandle
}

// PrepareFinetuning returns a function that fine-tunes an announced model in a background job. It returns nil if the
// task has no fine-tuning, or if no training rows are available.
func (t *TrainingManager) PrepareFinetuning(version wire.ModelVersion) func(context.Context, *modelfile.Model) error {
	p, l, ann := t.dependencies.Tasks.LastPreparedTask(), t.dependencies.Tasks.AnnouncedTask(),
		&t.core.LastAnnouncement.Announcement
	if l.CompiledTask.Task.FinetuneSteps == 0 || p == nil || p.LocalTask != l || !t.dependencies.Tasks.RowsFitTask() {
		return nil
	}
	f := &finetuning{task: l.CompiledTask.Task, rows: p.TrainingRows, rowsErr: p.View.Err,
		stepOffset: ann.PriorLocalSteps,
		lockHandle: t.newLockHandle(),
		rng: task.AgentRand(task.PersonalStepsSeed(ann.Seed), wire.RoundID(version),
			task.AgentRandomKey(t.core.ID))}
	return f.run
}

// run fine-tunes the model m. It leaves the model unchanged if the local steps diverge.
func (f *finetuning) run(ctx context.Context, m *modelfile.Model) error {
	p, err := task.Compile[float32](f.task) // Use a separate instance, because training may run concurrently.
	if err != nil {
		return err
	}
	w, err := m.Parameters()
	if err == nil {
		err = f.lockHandle.acquire(ctx)
	}
	if err != nil {
		return err
	}
	defer f.lockHandle.release()
	diverged := p.Finetune(w, f.rows, f.rng, f.stepOffset,
		func() bool { f.lockHandle.yieldBetweenSteps(ctx); return ctx.Err() != nil })
	if err = f.rowsErr(); err == nil {
		err = ctx.Err()
	}
	if err == nil && diverged == nil {
		m.ParameterBytes = wire.AppendVector(nil, w)
		m.ParameterDigest = wire.BlobDigest(m.ParameterBytes)
	}
	return err
}
