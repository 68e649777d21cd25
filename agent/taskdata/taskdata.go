// Package taskdata prepares the local rows for the announced task: it reads them from the data source and splits them
// into training rows and held-out rows. It also counts the rows that no round has used and reports the values that the
// source has received.
package taskdata

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Config configures the source of the rows and how the agent uses them.
type Config struct {
	// Source provides the rows and is read in a background job. While reading fails, the agent declines rounds.
	Source data.Source
	// HeldOutShare is the share of the newest rows that a run excludes from training; 0 means that no rows are held
	// out. Models are scored on these rows and on rows added during the run.
	HeldOutShare float64
	// MinRows is the minimum number of training rows from which results may leave the device, even if the task requires
	// fewer.
	MinRows uint64
	// ShowsValues makes the newest values of the inputs metrics of the device.
	ShowsValues bool
}

// Validate returns an error that lists all problems of the configuration, or nil.
func (c *Config) Validate() (err error) {
	if c.Source == nil {
		err = errors.New("the data source is not set")
	}
	if inRange := c.HeldOutShare >= 0 && c.HeldOutShare < 1; !inRange {
		err = errors.Join(err, fmt.Errorf("the share of held-out rows is %v, but must be at least 0 and less than 1",
			c.HeldOutShare))
	}
	return err
}

// AgentCallbacks contains the functions of the agent that the part calls.
type AgentCallbacks struct {
	// CountReportedRows returns the number of rows that the agent reports to the coordinator.
	CountReportedRows func(*learner.Samples[float32]) uint64
	// OnTaskOrRowsChanged is called after the announced task or its rows have changed.
	OnTaskOrRowsChanged func()
}

// TaskDataLoader is the part of an agent that prepares the rows of the announced task. It implements
// part.LocalTaskProvider.
type TaskDataLoader struct {
	core      *part.AgentCore
	cfg       Config
	callbacks AgentCallbacks

	wantedTaskHash    wire.Digest // hash of the announced task
	announced         *part.LocalTask
	prepared          *part.PreparedTask
	misfit            *rowsMisfit // reason why the rows do not fit the announced task; nil if they fit
	split             heldOutSplit
	newRows           newRowCounter
	nextSourceCheckAt time.Time // earliest time of the next check for new data
	nextReportAt      time.Time // time of the next report about the data source
	isUpdatingReport  bool      // whether a job reads new data for the next report
	previousReport    data.QualityReport
}

// New returns a TaskDataLoader. It loads the saved boundary between training rows and held-out rows.
func New(core *part.AgentCore, cfg Config, hooks AgentCallbacks) (p *TaskDataLoader, err error) {
	p = &TaskDataLoader{core: core, cfg: cfg, callbacks: hooks}
	p.split, err = loadHeldOutSplit(core.StateFolder)
	return p, err
}

// AnnouncedTask implements part.LocalTaskProvider.
func (p *TaskDataLoader) AnnouncedTask() *part.LocalTask { return p.announced }

// LastPreparedTask implements part.LocalTaskProvider.
func (p *TaskDataLoader) LastPreparedTask() *part.PreparedTask { return p.prepared }

// RowsFitTask implements part.LocalTaskProvider.
func (p *TaskDataLoader) RowsFitTask() bool { return p.misfit == nil }

// rowsMisfit describes why the local rows do not fit the task.
type rowsMisfit struct {
	problem         string
	reportedProblem wire.DataProblem
	retryAt         time.Time // time at which the rows are read again
	isPending       bool      // whether the problem ends when more data arrive
}

// newRowsMisfit returns a rowsMisfit with the problem err. Unusable values with the same column and reason are the same
// problem, whatever their number. The coordinator receives either a reason from a fixed set or the text of the error.
func newRowsMisfit(err error, retryAt time.Time) *rowsMisfit {
	m := &rowsMisfit{problem: err.Error(), retryAt: retryAt, isPending: isPending(err)}
	m.reportedProblem.Reason = textPrefix(err.Error(), wire.MaxDataProblemReason)
	if e := (*data.FileError)(nil); errors.As(err, &e) {
		if e.ReasonCode != "" {
			m.problem = e.Column + " " + e.ReasonCode
		}
		m.reportedProblem = wire.DataProblem{Column: textPrefix(e.Column, wire.MaxName),
			Reason:          textPrefix(cmp.Or(e.ReasonCode, e.Problem), wire.MaxDataProblemReason),
			ExampleLocation: textSuffix(e.Where(), wire.MaxName), UnusableValues: e.BadCount, TotalValues: e.TotalCount}
	}
	return m
}

// textPrefix returns the beginning of a text, as valid UTF-8 of at most limit bytes.
func textPrefix(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// textSuffix returns the end of a text, as valid UTF-8 of at most limit bytes.
func textSuffix(text string, limit int) string {
	return strings.ToValidUTF8(text[max(0, len(text)-limit):], "")
}

// tooFewRowsError is the error if there are fewer training rows than the task or the device's owner requires.
type tooFewRowsError struct {
	rows        int
	minRowCount uint64
}

func (e *tooFewRowsError) Error() string {
	return fmt.Sprintf("the data has %d rows, but at least %d are required", e.rows, e.minRowCount)
}

const (
	// misfitRetryInterval is the interval between two attempts to read rows that do not fit the task. Even an unchanged
	// source may have been mounted or become readable.
	misfitRetryInterval = 10 * time.Minute
	// checkInterval is the minimum interval between checks for new data. It limits the hello messages that new data can
	// cause.
	checkInterval = 5 * time.Second
)

// AwaitTask sets the digest of the announced task, which PrepareTask will prepare.
func (p *TaskDataLoader) AwaitTask(task wire.Digest) { p.wantedTaskHash, p.misfit = task, nil }

// PrepareTask reads the rows for a task that has arrived. It calls read, which returns the encoded task, in a
// background job.
func (p *TaskDataLoader) PrepareTask(hash wire.Digest, read func() ([]byte, error)) {
	began := p.core.Loop.Now()
	p.core.RunJobThenOnLoop(p.core.DataJobs, func() func() {
		blob, err := read()
		if err != nil {
			return p.makeRowsReadCallback(&part.LocalTask{Hash: hash}, data.RowSnapshot{}, wire.DeclineFetchFailed,
				RowsLoaded{Problem: err}, began)
		}
		l, err := p.openTask(hash, blob)
		if err != nil {
			return p.makeRowsReadCallback(l, data.RowSnapshot{}, wire.DeclineUnsupported, RowsLoaded{Problem: err},
				began)
		}
		return p.readTaskRows(l, began)
	})
}

// LoadTaskRows reads the rows for an encoded task, which may differ from the announced task. If the rows fit the task,
// it calls then on the event loop.
func (p *TaskDataLoader) LoadTaskRows(hash wire.Digest, blob []byte, then func(*part.PreparedTask)) {
	p.core.RunJobThenOnLoop(p.core.DataJobs, func() func() {
		var event RowsLoaded
		var view data.RowSnapshot
		l, err := p.openTask(hash, blob)
		if err == nil {
			event.Task = l.CompiledTask.Task.Name
			view, err = l.Rows.Snapshot()
		}
		return func() {
			var prepared *part.PreparedTask
			if event.Problem = err; err == nil {
				event.Rows = view.Rows.Len()
				prepared, event.Problem = p.splitRows(l, view)
			}
			p.core.Observer.Observe(event)
			if prepared != nil {
				then(prepared)
			}
		}
	})
}

// openTask compiles an encoded task and opens the source of its rows. It may be called from any goroutine.
func (p *TaskDataLoader) openTask(hash wire.Digest, blob []byte) (*part.LocalTask, error) {
	l := &part.LocalTask{Hash: hash}
	t, err := wire.DecodeTask(blob)
	if err != nil {
		return l, err
	}
	compiled, err := task.Compile[float32](t)
	if err == nil {
		l.CompiledTask = compiled
		query := data.RowQuery{Features: t.Features, Target: t.TargetColumn, Recipe: compiled.RowRecipe(),
			Labels: compiled.Model.Architecture().LabelSet(), Preparer: compiled.NewRowPreparer()}
		if t.External.IsEnabled() {
			query.ExternalTask = &compiled.Task
		}
		l.Rows = p.cfg.Source.OpenRows(query)
	}
	return l, err
}

// readTaskRows reads the rows of a task and is called in a background job. It returns a function that processes the
// rows on the event loop.
func (p *TaskDataLoader) readTaskRows(l *part.LocalTask, began time.Time) func() {
	view, err := l.Rows.Snapshot()
	event := RowsLoaded{Task: l.CompiledTask.Task.Name, ReplacementReason: view.ReplacementReason, Problem: err}
	switch {
	case isPending(err):
		return p.makeRowsReadCallback(l, view, wire.DeclineTooFewRows, event, began)
	case err != nil:
		return p.makeRowsReadCallback(l, view, wire.DeclineBadData, event, began)
	}
	return p.makeRowsReadCallback(l, view, 0, event, began)
}

// makeRowsReadCallback returns the function that handles the rows on the event loop.
func (p *TaskDataLoader) makeRowsReadCallback(l *part.LocalTask, view data.RowSnapshot, unfit wire.DeclineReason,
	event RowsLoaded,
	began time.Time) func() {
	event.LoadDuration = p.core.Loop.Now().Sub(began)
	return func() {
		if l.Hash == p.wantedTaskHash { // The condition is false if another task was announced in the meantime.
			p.adoptTaskRows(l, view, unfit, event)
			p.callbacks.OnTaskOrRowsChanged()
		}
	}
}

// splitRows splits a snapshot into training rows and held-out rows. It returns an error if the training rows are too
// few.
func (p *TaskDataLoader) splitRows(l *part.LocalTask, view data.RowSnapshot) (*part.PreparedTask, error) {
	prepared := p.splitHeldOutRows(l, view)
	least := max(l.CompiledTask.Task.MinSamples, p.cfg.MinRows)
	if n := prepared.TrainingRows.Len(); uint64(n) < least {
		return nil, &tooFewRowsError{n, least}
	}
	return prepared, nil
}

// adoptTaskRows stores the announced task with its rows and reports the result. It does not report unchanged rows or
// the same problem again.
func (p *TaskDataLoader) adoptTaskRows(l *part.LocalTask, view data.RowSnapshot, unfit wire.DeclineReason,
	event RowsLoaded) {
	before := p.misfit
	p.newRows.resetIfRowsReplaced(view)
	p.announced, p.misfit = l, nil
	var next *part.PreparedTask
	if unfit == 0 {
		event.Rows = view.Rows.Len()
		if next, event.Problem = p.splitRows(l, view); next == nil {
			unfit = wire.DeclineTooFewRows
		}
	}
	if unfit == wire.DeclineBadData || unfit == wire.DeclineTooFewRows {
		p.misfit = newRowsMisfit(event.Problem, p.core.Loop.Now().Add(misfitRetryInterval))
		if before != nil && before.problem == p.misfit.problem {
			return
		}
		event.WasPending = before != nil && before.isPending
	}
	checked := agentround.TaskChecked{TaskDigest: l.Hash, UnfitReason: unfit}
	if next != nil {
		if old := p.prepared; old != nil && old.LocalTask == l {
			if before == nil && old.View.Version == view.Version && old.TrainingRows.Len() == next.TrainingRows.Len() {
				return
			}
			event.RowsBefore = old.View.Rows.Len()
		}
		p.prepared = next
		checked.StatisticsUpdateBytes = uint32(next.CompiledTask.UpdateSchema(wire.KindStatistics).VectorByteCount())
		checked.RowCount = p.callbacks.CountReportedRows(next.TrainingRows)
	}
	p.core.Observer.Observe(event)
	p.core.HandleRoundEvent(checked)
}

// RefreshRows checks the source for new data and, in a new run, splits the rows again. It is called when the agent
// follows another announcement, because at that time no round uses the rows.
func (p *TaskDataLoader) RefreshRows() {
	if now := p.prepared; now != nil && p.cfg.HeldOutShare > 0 && p.split.run != p.core.ObeyedPosition.Run &&
		p.misfit == nil && now.LocalTask == p.announced {
		p.adoptTaskRows(now.LocalTask, now.View, 0, RowsLoaded{Task: now.CompiledTask.Task.Name})
	}
	p.rereadChangedRows()
}

// rereadChangedRows reads the rows of the announced task again if the source has new data.
func (p *TaskDataLoader) rereadChangedRows() {
	l, now := p.announced, p.core.Loop.Now()
	if l == nil || l.Rows == nil || now.Before(p.nextSourceCheckAt) {
		return
	}
	p.nextSourceCheckAt = now.Add(checkInterval)
	p.core.RunJobThenOnLoop(p.core.DataJobs, func() func() {
		if !l.Rows.Changed() {
			return func() {}
		}
		return p.readTaskRows(l, now)
	})
}

// rereadMisfitRows reads rows that did not fit the task again if a retry is due.
func (p *TaskDataLoader) rereadMisfitRows(now time.Time) {
	m, l := p.misfit, p.announced
	if m == nil || now.Before(m.retryAt) {
		return
	}
	m.retryAt = now.Add(misfitRetryInterval)
	p.core.RunJobThenOnLoop(p.core.DataJobs, func() func() { return p.readTaskRows(l, now) })
}

// Start implements part.Starter.
func (p *TaskDataLoader) Start() { p.reportSourceIfDue(p.core.Loop.Now()) }

// Deadline implements part.TickHook.
func (p *TaskDataLoader) Deadline() (time.Time, bool) {
	var next part.EarliestDeadline
	next.Add(p.nextReportAt, p.sourceReporter() != nil)
	next.Add(p.newRows.checkAt, p.awaitsNewRows())
	if p.misfit != nil {
		next.Add(p.misfit.retryAt, true)
	}
	return next.At, next.IsSet
}

// Tick implements part.TickHook.
func (p *TaskDataLoader) Tick(now time.Time) {
	p.rereadMisfitRows(now)
	p.reportSourceIfDue(now)
	p.checkForAwaitedNewRows(now)
}

// FillHello implements part.HelloFiller.
func (p *TaskDataLoader) FillHello(h *wire.Hello) {
	h.NewRows = p.newRowsReport()
	p.newRows.lastReported = h.NewRows
	if p.misfit != nil && (h.UnfitReason == wire.DeclineBadData || h.UnfitReason == wire.DeclineTooFewRows) {
		h.DataProblem = p.misfit.reportedProblem
	}
}

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{loadSeconds, dataValues, inputValue, dataTroubles, dataDoubts, newestTime,
	unusableRatio}

var loadSeconds = observe.OptionalGauge("data_load_seconds",
	"Duration of the last load of the local data for the announced task.")

// RowsLoaded reports that the agent has read the local rows for a task, either for the first time or after a change.
type RowsLoaded struct {
	Task       string
	Rows       int
	RowsBefore int // number of rows when the data last fitted the task; 0 at first
	// ReplacementReason describes why earlier rows were replaced, with file and line. It is empty if rows were only
	// added.
	ReplacementReason string
	LoadDuration      time.Duration
	Problem           error // reason why the rows do not fit the task; nil if they fit
	WasPending        bool  // whether the previous problem was that more data were needed
}

// isPending reports whether a problem of the rows ends without an action of the user, when more data arrive.
func isPending(problem error) bool {
	file, tooFew := (*data.FileError)(nil), (*tooFewRowsError)(nil)
	return errors.As(problem, &file) && file.IsPending || errors.As(problem, &tooFew)
}

// Describe implements observe.Event.
func (e RowsLoaded) Describe(d *observe.EventDescription) {
	const condition = "data"
	d.SetGauge(loadSeconds, e.LoadDuration.Seconds())
	if isPending(e.Problem) {
		if !e.WasPending { // Do not log, since the number of readings changes every few seconds.
			d.Log(observe.Info, "waiting for more data", "task", e.Task, "reason", e.Problem)
		}
		d.RaiseCondition(condition, fmt.Sprintf("not enough data for the task yet: %v", e.Problem),
			"wait for more data; `agentd data check` lists the rejected values")
		return
	}
	if e.Problem != nil {
		attributes := []any{"task", e.Task, "err", e.Problem}
		if e.ReplacementReason != "" {
			attributes = append(attributes, "change", e.ReplacementReason)
		}
		d.Log(observe.Error, "local data do not fit the task", attributes...)
		d.RaiseCondition(condition, fmt.Sprintf("the local data do not fit the task: %v", e.Problem),
			"list all errors with `agentd data check`; the agent reads the corrected data within ten minutes")
		return
	}
	d.ResolveCondition(condition)
	switch {
	case e.ReplacementReason != "":
		d.Log(observe.Warn, "local data have changed", "task", e.Task, "rows", e.Rows, "rows_before", e.RowsBefore,
			"took", e.LoadDuration, "change", e.ReplacementReason)
	case e.RowsBefore > 0:
		d.Log(observe.Info, "local data have grown", "task", e.Task, "rows", e.Rows, "rows_before", e.RowsBefore,
			"took", e.LoadDuration)
	default:
		d.Log(observe.Info, "local data fit the task", "task", e.Task, "rows", e.Rows, "took", e.LoadDuration)
	}
}
