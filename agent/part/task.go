package part

import (
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// LocalTask is a task with the source of its local rows, whether they fit the task or not.
type LocalTask struct {
	Hash         wire.Digest
	CompiledTask *task.CompiledTask[float32] // nil if the agent does not support the task
	Rows         data.QueriedRows
}

// AreRowsHiddenInTrainer reports whether an external program trains the task. Such a program reads its own rows, and
// decides itself whether it holds some of them out.
func (l *LocalTask) AreRowsHiddenInTrainer() bool { return l.CompiledTask.Task.External.IsEnabled() }

// PreparedTask is a task with local rows that fit it.
type PreparedTask struct {
	*LocalTask
	View         data.RowSnapshot
	TrainingRows *learner.Samples[float32]
	HeldOutRows  *learner.Samples[float32] // nil if no rows are held out
}

// FailureCause returns why work on the rows has failed: err, or the error with which rows could not be read. The values
// of rows that could not be read are not finite.
func (p *PreparedTask) FailureCause(err error) error {
	if lost := p.View.Err(); err != nil && lost != nil {
		return lost
	}
	return err
}

// LimitTrainingRows returns the task with at most n rows to train on, or with all of them if n is 0.
func (p *PreparedTask) LimitTrainingRows(n uint64) *PreparedTask {
	if n == 0 || n >= uint64(p.TrainingRows.Len()) {
		return p
	}
	limited := *p
	limited.TrainingRows = p.TrainingRows.FirstSamples(int(n))
	return &limited
}

// LocalTaskProvider is the announced task and its local rows, which package taskdata provides to other parts. It is
// used on the owner's goroutine.
type LocalTaskProvider interface {
	// AnnouncedTask returns the announced task once it is here; before that the previous one, or nil.
	AnnouncedTask() *LocalTask
	// LastPreparedTask returns the last task whose rows did fit. It is nil if there has been none.
	LastPreparedTask() *PreparedTask
	// RowsFitTask reports whether the rows fitted the announced task when they were last read. It returns true before
	// that.
	RowsFitTask() bool
}
