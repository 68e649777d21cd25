package data

import (
	"fmt"
	"slices"
	"sync/atomic"
	"weak"

	"github.com/fedmesh/fedmesh/learner"
)

// rowMaker makes rows from the lines of a file, or from readings.
type rowMaker interface {
	// changed reports whether make would find anything. It is cheap.
	changed() bool
	Reporter
	// addNewRows adds the rows that have come.
	addNewRows(m *sharedRows) error
	// noRowsError says why there are no rows. renewed is why those that were there are void; empty if there were none.
	noRowsError(renewed string) error
}

// sharedRows contains the rows of a rowMaker, for all callers that want the same rows.
type sharedRows struct {
	rowMaker
	name        string // in errors; may be empty
	raw         *rawRows
	targetDelay int64 // View.Ahead
	rowsVersion
	renewalReason string // they were renewed

	columns  []string // names of the features, and of the target if there is one
	outliers atomic.Pointer[[]SourceTrouble]
	examined rowsVersion // of the rows, when outliers were looked for
}

// Report implements Reporter.
func (m *sharedRows) Report() Report {
	all := m.rowMaker.Report()
	if found := m.outliers.Load(); found != nil {
		all.Troubles = append(all.Troubles, *found...)
	}
	return all
}

// findOutliers searches for outliers again if the rows have grown by a tenth, or were replaced.
func (m *sharedRows) findOutliers() {
	if m.examined.renewals != m.renewals {
		m.outliers.Store(nil)
	}
	if m.examined.renewals == m.renewals && m.rows < m.examined.rows+max(1, m.examined.rows/10) || m.raw.keepTail ||
		m.rows < minWarnValues {
		return
	}
	m.examined = m.rowsVersion
	var found []SourceTrouble
	for _, o := range learner.FindOutliers(m.raw.samples(m.rows)) {
		if o.Column < len(m.columns) { // else rows have no target
			found = append(found, SourceTrouble{TroubleOutlier,
				fmt.Sprintf("column %q: %d of %d values lie far from the others, "+
					"such as %v, where the others are from %.4g to %.4g: if it stands for no value, add it to "+
					"data.missing_values, or set data.range",
					utf8Text(m.columns[o.Column]), o.OutlierCount, m.rows, float32(o.Worst), o.LowestInlier,
					o.HighestInlier)})
		}
	}
	m.outliers.Store(&found)
}

// rowsVersion identifies a version of the rows.
type rowsVersion struct {
	rows     int // of raw, in views
	renewals int // how many times they were renewed
}

// discardRows discards all rows.
func (m *sharedRows) discardRows(raw *rawRows, why string) {
	if m.rows > 0 {
		m.renewals++
		m.renewalReason = why
	}
	m.raw, m.rows = raw, 0
}

// newRawRows returns a place for rows like those of m.
func (m *sharedRows) newRawRows() *rawRows {
	return &rawRows{rowStorage: m.raw.rowStorage, features: m.raw.features, timed: m.raw.timed,
		keepTail: m.raw.keepTail}
}

// sharedRowsByKey contains the rows of a source, keyed by the options of their callers.
type sharedRowsByKey map[string]weak.Pointer[sharedRows]

// open returns the rows that are wanted, which make begins if nobody has them.
func (s *sharedRowsByKey) open(w RowQuery, make func() *sharedRows) Rows {
	key := fmt.Sprintf("%q %q %#v %t %v", w.Features, w.Target, w.Recipe, w.BeforeTargets, w.Labels)
	if *s == nil {
		*s = sharedRowsByKey{}
	}
	m := (*s)[key].Value()
	if m == nil {
		for key, p := range *s {
			if p.Value() == nil {
				delete(*s, key)
			}
		}
		m = make()
		m.columns = w.columns()
		(*s)[key] = weak.Make(m)
	}
	return &taskRows{shared: m, want: w, lastVersion: rowsVersion{renewals: m.renewals}, preparedRenewals: m.renewals}
}

// taskRows implements Rows: those that were made, in a task's terms. While they are in memory these are copies; those
// of a file are brought into these terms whenever they are read.
type taskRows struct {
	shared           *sharedRows
	want             RowQuery
	lastVersion      rowsVersion // of the rows that were made, at the last snapshot
	preparedRenewals int         // as of made, when the rows below were
	preparedRows     int         // rows that Prepare has seen
	x, y             []float32   // these, if they are in memory and there is a Prepare
	table            *fileTable  // of these, if they are in a file
	viewRows         int         // rows of the last view, with those that are gone
	view             View        // the last one
	renewalReason    string      // the rows of the last view were given up; until it is told
}

// Changed implements Rows.
func (r *taskRows) Changed() bool {
	return r.shared.changed() || r.shared.raw.err() != nil || r.lastVersion != r.shared.rowsVersion
}

// Report implements Reporter.
func (r *taskRows) Report() Report { return r.shared.Report() }

// Snapshot implements Rows.
func (r *taskRows) Snapshot() (View, error) {
	err := r.shared.addNewRows(r.shared)
	if err == nil {
		r.shared.findOutliers()
	}
	before := r.lastVersion
	r.lastVersion = r.shared.rowsVersion
	if err != nil {
		return View{}, err
	}
	if r.preparedRenewals != r.shared.renewals {
		if r.viewRows > 0 {
			r.renewalReason = r.shared.renewalReason
		}
		r.preparedRenewals, r.preparedRows, r.x, r.y, r.table, r.viewRows = r.shared.renewals, 0, nil, nil, nil, 0
	}
	if r.shared.rows == 0 {
		return View{}, r.shared.noRowsError(r.renewalReason)
	}
	if err := r.prepare(); err != nil {
		r.lastVersion = before // they may be accepted later
		if r.shared.name != "" {
			err = fmt.Errorf("%s: %w", r.shared.name, err)
		}
		return View{}, err
	}
	if r.viewRows != r.shared.rows {
		r.viewRows = r.shared.rows
		r.view = View{Version: r.view.Version + 1, Rows: r.samples(), Times: r.shared.raw.takenAt(r.viewRows),
			TargetDelay: r.shared.targetDelay, RenewalReason: r.renewalReason, readErr: r.shared.raw.err}
		r.renewalReason = ""
	}
	return r.view, nil
}

// samples are the rows that are ready.
func (r *taskRows) samples() *learner.Samples[float32] {
	raw := r.shared.raw
	switch {
	case raw.file != nil:
		if r.table == nil || r.table.file != raw.file {
			r.table = &fileTable{file: raw.file, preparer: r.want.Prepare}
		}
		r.x, r.y = nil, nil
		return learner.NewTableSamples(raw.features, r.preparedRows, learner.StoredTable[float32](r.table))
	case r.want.Prepare != nil:
		return learner.NewSamples(raw.features, r.x, r.y)
	}
	return raw.samples(r.preparedRows)
}

// prepare brings the rows that have come into the task's terms, or finds that they cannot be.
func (r *taskRows) prepare() error {
	raw, from, to := r.shared.raw, r.preparedRows, r.shared.rows
	if r.want.Prepare == nil || from == to {
		r.preparedRows = to
		return nil
	}
	n := raw.features
	if raw.file == nil {
		x, y := slices.Clone(raw.x[from*n:to*n]), slices.Clone(raw.y[from:to])
		if err := r.want.Prepare.Prepare(learner.NewSamples(n, x, y), from == 0); err != nil {
			return err
		}
		r.x, r.y, r.preparedRows = append(r.x, x...), append(r.y, y...), to
		return nil
	}
	some := raw.samples(to).After(from).All()
	for at := from; at < to; at += prepareRows {
		b := some.RowRange(at-from, prepareRows)
		if err := raw.err(); err != nil {
			return err
		}
		if err := r.want.Prepare.Prepare(learner.NewSamples(n, b.X, b.Y), at == 0); err != nil {
			return err
		}
	}
	r.preparedRows = to
	return nil
}

// prepareRows is how many rows of a file are prepared at a time.
const prepareRows = 1024
