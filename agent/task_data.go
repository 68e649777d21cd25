package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// localTask is a task, and the local data that it asks for, whether they fit or not.
type localTask struct {
	hash         wire.Digest
	compiledTask *task.CompiledTask[float32] // nil if the task cannot be worked on
	rows         data.Rows
}

// preparedTask is a task with the local data in its terms.
type preparedTask struct {
	*localTask
	view         data.View
	trainingRows *learner.Samples[float32] // the rows that are trained on
	heldOutRows  *learner.Samples[float32] // those that are held out; nil if none are
}

// failureCause is why work on the rows has failed: if rows could not be read, all that was made of them is not finite.
func (p *preparedTask) failureCause(err error) error {
	if lost := p.view.Err(); err != nil && lost != nil {
		return lost
	}
	return err
}

// limitTrainingRows is p with no more than n rows to train on; with all if n is 0.
func (p *preparedTask) limitTrainingRows(n uint64) *preparedTask {
	if n == 0 || n >= uint64(p.trainingRows.Len()) {
		return p
	}
	few := *p
	few.trainingRows = p.trainingRows.First(int(n))
	return &few
}

// dataMisfit is why the local data do not fit the task.
type dataMisfit struct {
	problem         string
	reportedProblem wire.DataProblem
	retryAt         time.Time // when they are looked at once more
}

// newMisfit returns a misfit whose problem is err. Two misfits about unusable values have the same
// problem if column and reason are the same, whatever the number of values. The coordinator learns the error's text
// where it has no reason from the closed set.
func newMisfit(err error, again time.Time) *dataMisfit {
	m := &dataMisfit{problem: err.Error(), retryAt: again}
	m.reportedProblem.Reason = textPrefix(err.Error(), wire.MaxReason)
	if e := (*data.FileError)(nil); errors.As(err, &e) {
		if e.Reason != "" {
			m.problem = e.Column + " " + e.Reason
		}
		m.reportedProblem = wire.DataProblem{Column: textPrefix(e.Column, wire.MaxName),
			Reason:          textPrefix(cmp.Or(e.Reason, e.Problem), wire.MaxReason),
			ExampleLocation: textSuffix(e.Where(), wire.MaxName), UnusableValues: e.BadCount, TotalValues: e.TotalCount}
	}
	return m
}

// textPrefix returns the beginning of a text, as UTF-8 of at most so many bytes.
func textPrefix(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// textSuffix returns the end of a text.
func textSuffix(text string, most int) string {
	return strings.ToValidUTF8(text[max(0, len(text)-most):], "")
}

const (
	// misfitRetryInterval is the time after which data that do not fit are looked at again, changed or not: a file may
	// be mounted, or allowed to be read.
	misfitRetryInterval = 10 * time.Minute
	// dataCheckInterval is the least time between two looks at data for what has come: each may end in a hello.
	dataCheckInterval = 5 * time.Second
)

// prepareTask holds the local data against a task that came, or tells that it
// could not be had.
func (a *Agent) prepareTask(hash wire.Digest, b *fetch.Blob, err error) {
	if errors.Is(err, fetch.ErrCanceled) {
		return
	}
	if err != nil {
		a.stepRoundMachine(round.TaskChecked{Task: hash, UnfitReason: wire.DeclineFetch})
		return
	}
	began := a.owner.Now()
	a.core.Do(a.core.DataJobs, func() func() {
		l := &localTask{hash: hash}
		blob, err := b.ReadAll()
		if err != nil {
			return a.afterFitAttempt(l, data.View{}, wire.DeclineFetch, DataLoaded{Problem: err}, began)
		}
		if err := a.compileTask(l, blob); err != nil {
			return a.afterFitAttempt(l, data.View{}, wire.DeclineUnsupported, DataLoaded{Problem: err}, began)
		}
		return a.fitDataToTask(l, began)
	})
}

// compileTask makes a task workable.
func (a *Agent) compileTask(l *localTask, blob []byte) error {
	t, err := wire.DecodeTask(blob)
	if err != nil {
		return err
	}
	problem, err := task.Compile[float32](t)
	if err == nil {
		l.compiledTask = problem
		want := data.RowQuery{Features: t.Features, Target: t.Target, Recipe: problem.Recipe(),
			Labels: problem.Model.Architecture().LabelSet(), Prepare: problem.Preparer()}
		if t.External.Enabled() {
			want.External = &l.compiledTask.Task
		}
		l.rows = a.cfg.Data.Open(want)
	}
	return err
}

// fitDataToTask reads the data that a task asks for, as they are now, and returns what the owner makes of it.
func (a *Agent) fitDataToTask(l *localTask, began time.Time) func() {
	view, err := l.rows.Snapshot()
	event := DataLoaded{Task: l.compiledTask.Task.Name, RenewalReason: view.RenewalReason, Problem: err}
	if err != nil {
		return a.afterFitAttempt(l, view, wire.DeclineBadData, event, began)
	}
	return a.afterFitAttempt(l, view, 0, event, began)
}

// afterFitAttempt returns what the owner makes of data that were read.
func (a *Agent) afterFitAttempt(l *localTask, view data.View, unfit wire.DeclineReason, event DataLoaded,
	began time.Time) func() {
	event.Took = a.owner.Now().Sub(began)
	return func() {
		if l.hash == a.wantedTaskHash { // else another task has come meanwhile
			a.adoptTaskData(l, view, unfit, event)
			a.startNewestModelTrial()
			a.startEvaluation()
		}
	}
}

// splitIfEnough parts a view into what is trained on and what is held out. It is nil, with the reason, if there are too
// few.
func (a *Agent) splitIfEnough(l *localTask, view data.View) (*preparedTask, error) {
	p := a.splitHeldOutRows(l, view)
	if least := max(l.compiledTask.Task.MinSamples, a.cfg.MinRows); uint64(p.trainingRows.Len()) < least {
		return nil, &tooFewRowsError{p.trainingRows.Len(), least}
	}
	return p, nil
}

// adoptTaskData goes on with data that were read. The same misfit, and the same rows, are told once.
func (a *Agent) adoptTaskData(l *localTask, view data.View, unfit wire.DeclineReason, event DataLoaded) {
	before := a.misfit
	a.newRows.noteRowsReplaced(view)
	a.local, a.misfit = l, nil
	var p *preparedTask
	if unfit == 0 {
		event.Rows = view.Rows.Len()
		if p, event.Problem = a.splitIfEnough(l, view); p == nil {
			unfit = wire.DeclineTooFewRows
		}
	}
	if unfit == wire.DeclineBadData || unfit == wire.DeclineTooFewRows {
		a.misfit = newMisfit(event.Problem, a.owner.Now().Add(misfitRetryInterval))
		if before != nil && before.problem == a.misfit.problem {
			return
		}
	}
	ev := round.TaskChecked{Task: l.hash, UnfitReason: unfit}
	if p != nil {
		if old := a.prepared; old != nil && old.localTask == l {
			if before == nil && old.view.Version == view.Version && old.trainingRows.Len() == p.trainingRows.Len() {
				return
			}
			event.RowsBefore = old.view.Rows.Len()
		}
		a.prepared = p
		ev.StatisticsUpdateBytes = uint32(p.compiledTask.Schema(wire.KindStatistics).Bytes())
		ev.Samples = a.cfg.Trainer.Rows(p.trainingRows)
	}
	a.cfg.Observer.Observe(event)
	a.stepRoundMachine(ev)
}

// Task returns the task that the agent holds its data against, encoded; nil if it has none yet. It may be called from
// any goroutine.
func (a *Agent) Task(ctx context.Context) ([]byte, error) {
	held := make(chan *localTask, 1)
	if err := a.owner.RunOnLoopContext(ctx, func() { held <- a.local }); err != nil {
		return nil, err
	}
	select {
	case l := <-held:
		if l == nil || l.compiledTask == nil {
			return nil, nil
		}
		return l.compiledTask.Task.Append(nil), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the agent does not answer: %w", ctx.Err())
	}
}

// retryMisfit looks at data again that did not fit.
func (a *Agent) retryMisfit(now time.Time) {
	m, l := a.misfit, a.local
	if m == nil || now.Before(m.retryAt) {
		return
	}
	m.retryAt = now.Add(misfitRetryInterval)
	a.core.Do(a.core.DataJobs, func() func() { return a.fitDataToTask(l, now) })
}

// checkForNewData reads what has come to the data that the task asks for, if anything has. A source is looked at when
// the coordinator has said something new, since nobody trains in between.
func (a *Agent) checkForNewData() {
	l, now := a.local, a.owner.Now()
	if l == nil || l.rows == nil || now.Before(a.newDataCheckAt) {
		return
	}
	a.newDataCheckAt = now.Add(dataCheckInterval)
	a.core.Do(a.core.DataJobs, func() func() {
		if !l.rows.Changed() {
			return func() {}
		}
		return a.fitDataToTask(l, now)
	})
}

var dataLoadSeconds = observe.OptionalGauge("data_load_seconds",
	"Time that reading the local data for the announced task took.")

// DataLoaded: the agent has read the local data for a task, for the first time or because they have changed.
type DataLoaded struct {
	Task       string
	Rows       int
	RowsBefore int // rows when the data last fitted the task; 0 the first time
	// RenewalReason is why earlier rows are no longer there, with file and line. It is empty if rows were only added.
	RenewalReason string
	Took          time.Duration
	Problem       error // why the data do not fit; nil if they fit
}

// Describe implements observe.Event.
func (e DataLoaded) Describe(d *observe.Description) {
	const condition = "data"
	d.Set(dataLoadSeconds, e.Took.Seconds())
	if e.Problem != nil {
		attributes := []any{"task", e.Task, "err", e.Problem}
		if e.RenewalReason != "" {
			attributes = append(attributes, "change", e.RenewalReason)
		}
		d.Log(observe.Error, "local data do not fit the task", attributes...)
		d.Fail(condition, fmt.Sprintf("the local data do not fit the task: %v", e.Problem),
			"see all errors with `agentd data check`; the agent reads corrected data within ten minutes")
		return
	}
	d.Resolve(condition)
	switch {
	case e.RenewalReason != "":
		d.Log(observe.Warn, "local data have changed", "task", e.Task, "rows", e.Rows, "before", e.RowsBefore,
			"took", e.Took, "change", e.RenewalReason)
	case e.RowsBefore > 0:
		d.Log(observe.Info, "local data have grown", "task", e.Task, "rows", e.Rows, "before", e.RowsBefore,
			"took", e.Took)
	default:
		d.Log(observe.Info, "local data fit the task", "task", e.Task, "rows", e.Rows, "took", e.Took)
	}
}
