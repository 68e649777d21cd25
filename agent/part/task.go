package part

import (
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// LocalTask is a task with the source of its local rows, which may not fit the task.
type LocalTask struct {
	Hash         wire.Digest
	CompiledTask *task.CompiledTask[float32] // compiled form of the task; nil if the agent does not support the task
	Rows         data.QueriedRows
}

// AreRowsHiddenInTrainer reports whether an external program trains the task. Such a program reads its own rows and
// decides which of them to hold out.
func (l *LocalTask) AreRowsHiddenInTrainer() bool { return l.CompiledTask.Task.External.IsEnabled() }

// PreparedTask is a task with local rows that fit the task.
type PreparedTask struct {
	*LocalTask
	View         data.RowSnapshot
	TrainingRows *learner.Samples[float32]
	HeldOutRows  *learner.Samples[float32] // rows for evaluation; nil if none are held out
}

// FailureCause returns the error that occurred while reading the rows, if there was one, and err otherwise. Rows that
// cannot be read contain non-finite values, which cause other errors.
func (p *PreparedTask) FailureCause(err error) error {
	if lost := p.View.Err(); err != nil && lost != nil {
		return lost
	}
	return err
}

// LimitTrainingRows returns the task with at most n training rows, or with all training rows if n is 0.
func (p *PreparedTask) LimitTrainingRows(n uint64) *PreparedTask {
	if n == 0 || n >= uint64(p.TrainingRows.Len()) {
		return p
	}
	limited := *p
	limited.TrainingRows = p.TrainingRows.FirstSamples(int(n))
	return &limited
}

// LocalTaskProvider provides the announced task and its local rows to other parts. It is used on the event loop only.
type LocalTaskProvider interface {
	// AnnouncedTask returns the newest task that has arrived, or nil if no task has arrived.
	AnnouncedTask() *LocalTask
	// LastPreparedTask returns the last task for which fitting rows were read, or nil if there is none.
	LastPreparedTask() *PreparedTask
	// RowsFitTask reports whether the last rows read fit the announced task. Before any rows are read, it returns true.
	RowsFitTask() bool
}
