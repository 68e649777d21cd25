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
	data.QualityReporter
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
	targetDelay int64 // data.RowSnapshot.TargetDelay
	rowsVersion
	replacementReason string // they were renewed

	columnNames           []string // names of the features, and of the target if there is one
	outlierTroubles       atomic.Pointer[[]data.SourceTrouble]
	outlierCheckedVersion rowsVersion // of the rows, when outliers were looked for
}

// Report implements Reporter.
func (m *SharedRows) QualityReport() data.QualityReport {
	all := m.Maker.QualityReport()
	if found := m.outlierTroubles.Load(); found != nil {
		all.Troubles = append(all.Troubles, *found...)
	}
	return all
}

// findOutliers searches for outliers again if the rows have grown by a tenth, or were replaced.
func (m *SharedRows) findOutliers() {
	if m.outlierCheckedVersion.replacementCount != m.replacementCount {
		m.outlierTroubles.Store(nil)
	}
	if m.outlierCheckedVersion.replacementCount == m.replacementCount &&
		m.RowCount < m.outlierCheckedVersion.RowCount+max(1,
			m.outlierCheckedVersion.RowCount/10) || m.Raw.keepsOnlyNewestRows ||
		m.RowCount < data.MinValuesForTrouble {
		return
	}
	m.outlierCheckedVersion = m.rowsVersion
	var found []data.SourceTrouble
	for _, o := range learner.FindOutliers(m.Raw.firstSamples(m.RowCount)) {
		if o.ColumnIndex < len(m.columnNames) { // else rows have no target
			found = append(found, data.SourceTrouble{Kind: data.TroubleOutlier,
				Text: fmt.Sprintf("column %q: %d of %d values lie far from the others, "+
					"such as %v, where the others are from %.4g to %.4g: if it stands for no value, add it to "+
					"data.missing_values, or set data.range",
					data.UTF8Text(m.columnNames[o.ColumnIndex]), o.OutlierCount, m.RowCount, float32(o.WorstOutlier),
					o.LowestInlier,
					o.HighestInlier)})
		}
	}
	m.outlierTroubles.Store(&found)
}

// rowsVersion identifies a version of the rows.
type rowsVersion struct {
	RowCount         int // of raw, in views
	replacementCount int // how many times they were renewed
}

// DiscardRows discards all rows.
func (m *SharedRows) DiscardRows(raw *RawRows, why string) {
	if m.RowCount > 0 {
		m.replacementCount++
		m.replacementReason = why
	}
	m.Raw, m.RowCount = raw, 0
}

// NewRawRows returns a place for rows like those of m.
func (m *SharedRows) NewRawRows() *RawRows {
	return &RawRows{StorageSettings: m.Raw.StorageSettings, FeatureCount: m.Raw.FeatureCount, HasTimes: m.Raw.HasTimes,
		keepsOnlyNewestRows: m.Raw.keepsOnlyNewestRows}
}

// SharedRowsCache contains the rows of a source, keyed by the options of their callers.
type SharedRowsCache map[string]weak.Pointer[SharedRows]

// OpenTaskRows returns the rows that are wanted, which make begins if nobody has them.
func (s *SharedRowsCache) OpenTaskRows(w data.RowQuery, make func() *SharedRows) data.QueriedRows {
	key := fmt.Sprintf("%q %q %#v %t %v", w.Features, w.Target, w.Recipe, w.IsForPrediction, w.Labels)
	if *s == nil {
		*s = SharedRowsCache{}
	}
	m := (*s)[key].Value()
	if m == nil {
		for key, p := range *s {
			if p.Value() == nil {
				delete(*s, key)
			}
		}
		m = make()
		m.columnNames = w.Columns()
		(*s)[key] = weak.Make(m)
	}
	return &TaskRows{Shared: m, query: w, lastVersion: rowsVersion{replacementCount: m.replacementCount},
		preparedReplacementCount: m.replacementCount}
}

// TaskRows implements Rows: those that were made, in a task's terms. While they are in memory these are copies; those
// of a file are brought into these terms whenever they are read.
type TaskRows struct {
	Shared                   *SharedRows
	query                    data.RowQuery
	lastVersion              rowsVersion      // of the rows that were made, at the last snapshot
	preparedReplacementCount int              // as of made, when the rows below were
	preparedRowCount         int              // rows that Prepare has seen
	x, y                     []float32        // these, if they are in memory and there is a Prepare
	preparedFile             *preparedRowFile // of these, if they are in a file
	lastSnapshotRowCount     int              // rows of the last view, with those that are gone
	lastSnapshot             data.RowSnapshot // the last one
	replacementReason        string           // the rows of the last view were given up; until it is told
}

// Changed implements Rows.
func (r *TaskRows) Changed() bool {
	return r.Shared.Maker.Changed() || r.Shared.Raw.Err() != nil || r.lastVersion != r.Shared.rowsVersion
}

// Report implements Reporter.
func (r *TaskRows) QualityReport() data.QualityReport { return r.Shared.QualityReport() }

// Snapshot implements Rows.
func (r *TaskRows) Snapshot() (data.RowSnapshot, error) {
	err := r.Shared.Maker.AddNewRows(r.Shared)
	if err == nil {
		r.Shared.findOutliers()
	}
	before := r.lastVersion
	r.lastVersion = r.Shared.rowsVersion
	if err != nil {
		return data.RowSnapshot{}, err
	}
	if r.preparedReplacementCount != r.Shared.replacementCount {
		if r.lastSnapshotRowCount > 0 {
			r.replacementReason = r.Shared.replacementReason
		}
		r.preparedReplacementCount, r.preparedRowCount, r.x, r.y, r.preparedFile,
			r.lastSnapshotRowCount = r.Shared.replacementCount, 0, nil,
			nil, nil, 0
	}
	if r.Shared.RowCount == 0 {
		return data.RowSnapshot{}, r.Shared.Maker.NoRowsError(r.replacementReason)
	}
	if err := r.prepareNewRows(); err != nil {
		r.lastVersion = before // they may be accepted later
		if r.Shared.Name != "" {
			err = fmt.Errorf("%s: %w", r.Shared.Name, err)
		}
		return data.RowSnapshot{}, err
	}
	if r.lastSnapshotRowCount != r.Shared.RowCount {
		r.lastSnapshotRowCount = r.Shared.RowCount
		r.lastSnapshot = data.RowSnapshot{Version: r.lastSnapshot.Version + 1, Rows: r.samples(),
			Times:       r.Shared.Raw.firstRowTimes(r.lastSnapshotRowCount),
			TargetDelay: r.Shared.targetDelay, ReplacementReason: r.replacementReason, ReadErr: r.Shared.Raw.Err}
		r.replacementReason = ""
	}
	return r.lastSnapshot, nil
}

// samples are the rows that are ready.
func (r *TaskRows) samples() *learner.Samples[float32] {
	raw := r.Shared.Raw
	switch {
	case raw.File != nil:
		if r.preparedFile == nil || r.preparedFile.file != raw.File {
			r.preparedFile = &preparedRowFile{file: raw.File, preparer: r.query.Preparer}
		}
		r.x, r.y = nil, nil
		return learner.NewTableSamples(raw.FeatureCount, r.preparedRowCount,
			learner.StoredTable[float32](r.preparedFile))
	case r.query.Preparer != nil:
		return learner.NewSamples(raw.FeatureCount, r.x, r.y)
	}
	return raw.firstSamples(r.preparedRowCount)
}

// prepareNewRows brings the rows that have come into the task's terms, or finds that they cannot be.
func (r *TaskRows) prepareNewRows() error {
	raw, from, to := r.Shared.Raw, r.preparedRowCount, r.Shared.RowCount
	if r.query.Preparer == nil || from == to {
		r.preparedRowCount = to
		return nil
	}
	n := raw.FeatureCount
	if raw.File == nil {
		x, y := slices.Clone(raw.x[from*n:to*n]), slices.Clone(raw.y[from:to])
		if err := r.query.Preparer.PrepareSamples(learner.NewSamples(n, x, y), from == 0); err != nil {
			return err
		}
		r.x, r.y, r.preparedRowCount = append(r.x, x...), append(r.y, y...), to
		return nil
	}
	some := raw.firstSamples(to).SkipFirstSamples(from).All()
	for at := from; at < to; at += maxRowsPerPrepare {
		b := some.RowRange(at-from, maxRowsPerPrepare)
		if err := raw.Err(); err != nil {
			return err
		}
		// the result is discarded: this checks the labels, and preparedRowFile prepares the rows whenever they are read
		if err := r.query.Preparer.PrepareSamples(learner.NewSamples(n, b.X, b.Y), at == 0); err != nil {
			return err
		}
	}
	r.preparedRowCount = to
	return nil
}

// maxRowsPerPrepare is how many rows of a file are prepared at a time.
const maxRowsPerPrepare = 1024
