package rows

import (
	"fmt"
	"slices"
	"sync/atomic"
	"weak"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
)

// RowMaker makes rows from the lines of a file, or from readings.
type RowMaker interface {
	// Changed reports whether make would find anything. It is cheap.
	Changed() bool
	data.Reporter
	// AddNewRows adds the rows that have come.
	AddNewRows(m *SharedRows) error
	// NoRowsError says why there are no rows. renewed is why those that were there are void; empty if there were none.
	NoRowsError(renewed string) error
}

// SharedRows contains the rows of a Maker, for all callers that want the same rows.
type SharedRows struct {
	Maker       RowMaker
	Name        string // in errors; may be empty
	Raw         *RawRows
	targetDelay int64 // data.View.TargetDelay
	rowsVersion
	replacementReason string // they were renewed

	columns               []string // names of the features, and of the target if there is one
	outliers              atomic.Pointer[[]data.SourceTrouble]
	outlierCheckedVersion rowsVersion // of the rows, when outliers were looked for
}

// Report implements Reporter.
func (m *SharedRows) Report() data.Report {
	all := m.Maker.Report()
	if found := m.outliers.Load(); found != nil {
		all.Troubles = append(all.Troubles, *found...)
	}
	return all
}

// findOutliers searches for outliers again if the rows have grown by a tenth, or were replaced.
func (m *SharedRows) findOutliers() {
	if m.outlierCheckedVersion.replacementCount != m.replacementCount {
		m.outliers.Store(nil)
	}
	if m.outlierCheckedVersion.replacementCount == m.replacementCount && m.Rows < m.outlierCheckedVersion.Rows+max(1,
		m.outlierCheckedVersion.Rows/10) || m.Raw.keepTail ||
		m.Rows < data.MinValuesForTrouble {
		return
	}
	m.outlierCheckedVersion = m.rowsVersion
	var found []data.SourceTrouble
	for _, o := range learner.FindOutliers(m.Raw.firstSamples(m.Rows)) {
		if o.Column < len(m.columns) { // else rows have no target
			found = append(found, data.SourceTrouble{Kind: data.TroubleOutlier,
				Text: fmt.Sprintf("column %q: %d of %d values lie far from the others, "+
					"such as %v, where the others are from %.4g to %.4g: if it stands for no value, add it to "+
					"data.missing_values, or set data.range",
					data.UTF8Text(m.columns[o.Column]), o.OutlierCount, m.Rows, float32(o.WorstOutlier), o.LowestInlier,
					o.HighestInlier)})
		}
	}
	m.outliers.Store(&found)
}

// rowsVersion identifies a version of the rows.
type rowsVersion struct {
	Rows             int // of raw, in views
	replacementCount int // how many times they were renewed
}

// DiscardRows discards all rows.
func (m *SharedRows) DiscardRows(raw *RawRows, why string) {
	if m.Rows > 0 {
		m.replacementCount++
		m.replacementReason = why
	}
	m.Raw, m.Rows = raw, 0
}

// NewRawRows returns a place for rows like those of m.
func (m *SharedRows) NewRawRows() *RawRows {
	return &RawRows{StorageSettings: m.Raw.StorageSettings, Features: m.Raw.Features, HasTimes: m.Raw.HasTimes,
		keepTail: m.Raw.keepTail}
}

// SharedRowsByKey contains the rows of a source, keyed by the options of their callers.
type SharedRowsByKey map[string]weak.Pointer[SharedRows]

// Open returns the rows that are wanted, which make begins if nobody has them.
func (s *SharedRowsByKey) Open(w data.RowQuery, make func() *SharedRows) data.QueriedRows {
	key := fmt.Sprintf("%q %q %#v %t %v", w.Features, w.Target, w.Recipe, w.IsForPrediction, w.Labels)
	if *s == nil {
		*s = SharedRowsByKey{}
	}
	m := (*s)[key].Value()
	if m == nil {
		for key, p := range *s {
			if p.Value() == nil {
				delete(*s, key)
			}
		}
		m = make()
		m.columns = w.Columns()
		(*s)[key] = weak.Make(m)
	}
	return &TaskRows{Shared: m, want: w, lastVersion: rowsVersion{replacementCount: m.replacementCount},
		preparedReplacementCount: m.replacementCount}
}

// TaskRows implements Rows: those that were made, in a task's terms. While they are in memory these are copies; those
// of a file are brought into these terms whenever they are read.
type TaskRows struct {
	Shared                   *SharedRows
	want                     data.RowQuery
	lastVersion              rowsVersion   // of the rows that were made, at the last snapshot
	preparedReplacementCount int           // as of made, when the rows below were
	preparedRows             int           // rows that Prepare has seen
	x, y                     []float32     // these, if they are in memory and there is a Prepare
	table                    *rowFileTable // of these, if they are in a file
	viewRows                 int           // rows of the last view, with those that are gone
	view                     data.View     // the last one
	replacementReason        string        // the rows of the last view were given up; until it is told
}

// Changed implements Rows.
func (r *TaskRows) Changed() bool {
	return r.Shared.Maker.Changed() || r.Shared.Raw.Err() != nil || r.lastVersion != r.Shared.rowsVersion
}

// Report implements Reporter.
func (r *TaskRows) Report() data.Report { return r.Shared.Report() }

// Snapshot implements Rows.
func (r *TaskRows) Snapshot() (data.View, error) {
	err := r.Shared.Maker.AddNewRows(r.Shared)
	if err == nil {
		r.Shared.findOutliers()
	}
	before := r.lastVersion
	r.lastVersion = r.Shared.rowsVersion
	if err != nil {
		return data.View{}, err
	}
	if r.preparedReplacementCount != r.Shared.replacementCount {
		if r.viewRows > 0 {
			r.replacementReason = r.Shared.replacementReason
		}
		r.preparedReplacementCount, r.preparedRows, r.x, r.y, r.table, r.viewRows = r.Shared.replacementCount, 0, nil,
			nil, nil, 0
	}
	if r.Shared.Rows == 0 {
		return data.View{}, r.Shared.Maker.NoRowsError(r.replacementReason)
	}
	if err := r.prepare(); err != nil {
		r.lastVersion = before // they may be accepted later
		if r.Shared.Name != "" {
			err = fmt.Errorf("%s: %w", r.Shared.Name, err)
		}
		return data.View{}, err
	}
	if r.viewRows != r.Shared.Rows {
		r.viewRows = r.Shared.Rows
		r.view = data.View{Version: r.view.Version + 1, Rows: r.samples(),
			Times:       r.Shared.Raw.firstRowTimes(r.viewRows),
			TargetDelay: r.Shared.targetDelay, ReplacementReason: r.replacementReason, ReadErr: r.Shared.Raw.Err}
		r.replacementReason = ""
	}
	return r.view, nil
}

// samples are the rows that are ready.
func (r *TaskRows) samples() *learner.Samples[float32] {
	raw := r.Shared.Raw
	switch {
	case raw.File != nil:
		if r.table == nil || r.table.file != raw.File {
			r.table = &rowFileTable{file: raw.File, preparer: r.want.Prepare}
		}
		r.x, r.y = nil, nil
		return learner.NewTableSamples(raw.Features, r.preparedRows, learner.StoredTable[float32](r.table))
	case r.want.Prepare != nil:
		return learner.NewSamples(raw.Features, r.x, r.y)
	}
	return raw.firstSamples(r.preparedRows)
}

// prepare brings the rows that have come into the task's terms, or finds that they cannot be.
func (r *TaskRows) prepare() error {
	raw, from, to := r.Shared.Raw, r.preparedRows, r.Shared.Rows
	if r.want.Prepare == nil || from == to {
		r.preparedRows = to
		return nil
	}
	n := raw.Features
	if raw.File == nil {
		x, y := slices.Clone(raw.x[from*n:to*n]), slices.Clone(raw.y[from:to])
		if err := r.want.Prepare.Prepare(learner.NewSamples(n, x, y), from == 0); err != nil {
			return err
		}
		r.x, r.y, r.preparedRows = append(r.x, x...), append(r.y, y...), to
		return nil
	}
	some := raw.firstSamples(to).SkipFirst(from).All()
	for at := from; at < to; at += maxRowsPerPrepare {
		b := some.RowRange(at-from, maxRowsPerPrepare)
		if err := raw.Err(); err != nil {
			return err
		}
		// the result is discarded: this checks the labels, and rowFileTable prepares the rows whenever they are read
		if err := r.want.Prepare.Prepare(learner.NewSamples(n, b.X, b.Y), at == 0); err != nil {
			return err
		}
	}
	r.preparedRows = to
	return nil
}

// maxRowsPerPrepare is how many rows of a file are prepared at a time.
const maxRowsPerPrepare = 1024
