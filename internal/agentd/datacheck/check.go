// Package datacheck checks an agent's data against a task and reports the result to the operator.
package datacheck

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// TaskWithOrigin is a task together with the place that it was read from.
type TaskWithOrigin struct {
	wire.Task
	Origin string // where the task was found: file, running agent or broker
	// RejectionAdvice explains why the coordinator ignores the running agent's messages, and how to fix the problem.
	// RejectionAdvice is empty if the coordinator accepts the messages.
	RejectionAdvice string
}

// Result is the result of checking an agent's data against a task.
type Result struct {
	// Task summarizes the task. It is nil if the task is unknown; in this case the result describes only the data
	// source.
	Task         *TaskSummary         `json:"task,omitempty"`
	NoTaskReason string               `json:"no_task,omitempty"` // reason why the task is unknown
	SourceSurvey *survey.SourceSurvey `json:"data"`
	Rows         *RowSummary          `json:"rows,omitempty"` // summary of the rows; nil without a task
	// DeclineReason is the reason why the agent would not participate in a round. If the task is unknown, it is the
	// reason why the data source cannot be read.
	DeclineReason string `json:"declines,omitempty"`

	linesAreReadings bool // the source has readings instead of CSV lines
}

// TaskSummary describes the task that the data were checked against.
type TaskSummary struct {
	Name     string   `json:"name"`
	Origin   string   `json:"from"`
	Features []string `json:"features"`
	Target   string   `json:"target"`
}

// RowSummary describes the rows that the agent makes from its data source. If the check suggests changes of the
// configuration, the summary assumes that they have been made.
type RowSummary struct {
	MadeRows     int       `json:"made"`
	FirstRowTime time.Time `json:"first,omitzero"`
	LastRowTime  time.Time `json:"last,omitzero"`
	TrainingRows int       `json:"trained"`
	HeldOutRows  int       `json:"held_out"`
	// FirstHeldOutTime is the time of the first held-out row. An agent that has already started a run keeps the
	// boundary between training rows and held-out rows until the run ends.
	FirstHeldOutTime  time.Time              `json:"boundary,omitzero"`
	Columns           []survey.ColumnSummary `json:"columns"` // the features, then the target
	UnusedValueCounts []UnusedValueCount     `json:"unused,omitempty"`
	NoRowsReason      string                 `json:"problem,omitempty"` // reason why there are no rows
	// Warnings name columns with outliers and inputs whose values are mostly unused.
	Warnings []string `json:"warnings,omitempty"`
}

// ConstantColumns returns the numeric columns whose values are equal up to float32 precision.
func (r *RowSummary) ConstantColumns() (names []string) {
	const precision = 1.0 / (1 << 23)
	for _, c := range r.Columns {
		if c.Used > 1 && len(c.Texts) == 0 && c.Sigma <= precision*math.Abs(c.Mean) {
			names = append(names, c.Name)
		}
	}
	return names
}

// UnusedValueCount counts the values of one column or input that were not used for a given reason. For missing values
// it counts the rows that were skipped.
type UnusedValueCount struct {
	Column             string            `json:"column"`
	Reason             data.UnusedReason `json:"reason"`
	Count              uint64            `json:"count"`
	LastUnusedLocation string            `json:"last"` // location of the last unused value
}

// Run checks the data against the task t. If the task is unknown, t is nil and noTask is the reason.
func Run(s *settings.Agent, t *TaskWithOrigin, noTask string) (*Result, error) {
	section := s.Data
	section.RowFileFolder = spillFolder(s.FederationFolder())
	ring := filepath.Join(s.FederationFolder(), "readings")
	stored, err := sources.OpenStoredSource(&section, store.LocalDisk, ring)
	if err != nil {
		return nil, err
	}
	r := &Result{NoTaskReason: noTask, linesAreReadings: s.Data.Source != data.SourceCSV && s.Data.Source != ""}
	if t == nil {
		r.SourceSurvey = stored.Survey(nil)
		r.DeclineReason = unreadableReason(r.SourceSurvey)
		return r, nil
	}
	r.Task = &TaskSummary{t.Name, t.Origin, t.Features, t.TargetColumn}
	problem, err := task.Compile[float32](t.Task)
	if err != nil {
		r.SourceSurvey, r.DeclineReason = stored.Survey(nil),
			fmt.Sprintf("this agent does not support the task: %v",
				err)
		return r, nil
	}
	want := data.RowQuery{Features: t.Features, Target: t.TargetColumn, Recipe: problem.RowRecipe(),
		Labels: problem.Model.Architecture().LabelSet()}
	r.SourceSurvey = stored.Survey(&want)
	want.Preparer = problem.NewRowPreparer()
	least := max(t.MinSamples, uint64(s.Privacy.MinRowsToParticipate))
	if r.Rows = summarizeRows(stored, want, s.Evaluation.HeldOutShare); r.Rows.NoRowsReason != "" {
		r.DeclineReason = r.Rows.NoRowsReason
	} else if uint64(r.Rows.TrainingRows) < least {
		r.DeclineReason = fmt.Sprintf("the data contains %d training rows, but the task requires at least %d",
			r.Rows.TrainingRows,
			least)
	}
	if len(r.SourceSurvey.ConfigChanges) > 0 {
		if stored, err = sources.OpenStoredSource(survey.ApplyConfigChanges(&section, r.SourceSurvey.ConfigChanges),
			store.LocalDisk,
			ring); err != nil {
			return nil, err
		}
		r.Rows = summarizeRows(stored, want, s.Evaluation.HeldOutShare)
	}
	return r, nil
}

// spillFolder returns the folder for rows that do not fit into memory. This is the folder state, because the system's
// temporary folder may itself be in memory. If state is not writable, spillFolder returns "", which means the temporary
// folder.
func spillFolder(state string) string {
	f, err := os.CreateTemp(state, ".check-*")
	if err != nil {
		return ""
	}
	if errors.Join(f.Close(), os.Remove(f.Name())) != nil {
		return ""
	}
	return state
}

// unreadableReason returns the reason why the source cannot be used for any task, or "".
func unreadableReason(s *survey.SourceSurvey) string {
	for _, c := range s.ConfigChanges {
		return c.Reason
	}
	for _, f := range s.Faults {
		if (f.Reason == grid.ReasonBadTime || f.Reason == survey.ReasonDamaged) && !s.EarliestTime.IsZero() {
			continue // the other lines are readable; the task limits the number of bad lines
		}
		switch f.Reason {
		case survey.ReasonUnreadable, survey.ReasonDamaged, survey.ReasonNothingRecorded, survey.ReasonNoColumn,
			grid.ReasonMalformed, grid.ReasonBadTime:
			first := f.FirstFaults[0]
			switch file := quoteUnprintable(cmp.Or(first.File, s.SourcePath)); {
			case first.Line > 0:
				return fmt.Sprintf("%s: line %d: %s", file, first.Line, first.Problem)
			case first.File != "":
				return fmt.Sprintf("%s: %s", file, first.Problem)
			}
			return first.Problem
		}
	}
	return ""
}

// summarizeRows builds rows from s exactly as the agent does and returns a summary of them.
func summarizeRows(s data.Source, w data.RowQuery, heldOut float64) *RowSummary {
	m, err := survey.DescribeRows(s, w)
	r := &RowSummary{Columns: m.Columns}
	for _, c := range m.QualityReport.Columns {
		for _, reason := range data.UnusedReasons() {
			if n := c.Unused[reason]; n > 0 {
				r.UnusedValueCounts = append(r.UnusedValueCounts, UnusedValueCount{c.Name, reason, n,
					c.LastUnusedValue(reason).Where})
			}
		}
	}
	for _, t := range m.QualityReport.Troubles {
		if t.Kind.ReadingsStillArrive() {
			r.Warnings = append(r.Warnings, t.Text)
		}
	}
	if err != nil {
		r.NoRowsReason = err.Error()
		return r
	}
	v := m.Snapshot
	r.MadeRows, r.TrainingRows = v.Rows.Len(), v.Rows.Len()
	if t := v.Times; t != nil {
		r.FirstRowTime, r.LastRowTime = time.Unix(0, t.At(0)).UTC(), time.Unix(0, t.At(t.Len()-1)).UTC()
	}
	if heldOut > 0 {
		b := v.HeldOutBoundary(heldOut)
		trained, held := v.SplitHeldOut(b)
		r.TrainingRows, r.HeldOutRows, r.FirstHeldOutTime = trained.Len(), held.Len(), b.Time
	}
	return r
}

// Summary returns a one-line summary of the result.
func (r *Result) Summary() string {
	if r.Rows == nil {
		return fmt.Sprintf("%s: %s", r.SourceSurvey.SourcePath, r.lineCountText())
	}
	text := fmt.Sprintf("%s contains %d rows for the task %s", r.SourceSurvey.SourcePath, r.Rows.MadeRows, r.Task.Name)
	if n := r.Rows.HeldOutRows; n > 0 {
		text += fmt.Sprintf(", %d of which are held out for evaluation", n)
	}
	return text
}

// formatFault returns one line with the location and the description of a fault.
func formatFault(source string, f survey.DataFault) string {
	var place strings.Builder
	if f.Line == 0 && f.File != "" {
		fmt.Fprintf(&place, "%s: ", quoteUnprintable(f.File))
	}
	if f.Line > 0 {
		fmt.Fprintf(&place, "%s:%d:", quoteUnprintable(cmp.Or(f.File, source)), f.Line)
		if f.Column > 0 {
			fmt.Fprintf(&place, "%d:", f.Column)
		}
		place.WriteString(" ")
	}
	return place.String() + f.Problem
}
