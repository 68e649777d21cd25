package rows

import (
	"fmt"
	"slices"
	"sync/atomic"
	"weak"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
)

// RowMaker makes rows from the lines of a file or from readings.
type RowMaker interface {
	// Changed reports whether AddNewRows may find new rows. It is cheap.
	Changed() bool
	data.QualityReporter
	// AddNewRows adds the new rows to m.
	AddNewRows(m *SharedRows) error
	// NoRowsError returns an error that explains why no rows exist. renewed is the reason why the previous rows were
	// discarded; empty if no rows existed.
	NoRowsError(renewed string) error
}

// SharedRows contains the rows of a RowMaker for all callers that require the same rows.
type SharedRows struct {
	Maker       RowMaker
	Name        string // name for error messages; may be empty
	Raw         *RawRows
	targetDelay int64 // value for data.RowSnapshot.TargetDelay
	rowsVersion
	replacementReason string // reason for the last replacement of all rows

	columnNames           []string // names of the features and, if any, of the target
	outlierTroubles       atomic.Pointer[[]data.SourceTrouble]
	outlierCheckedVersion rowsVersion // version of the rows at the last search for outliers
}

// QualityReport implements data.QualityReporter.
func (m *SharedRows) QualityReport() data.QualityReport {
	all := m.Maker.QualityReport()
	if found := m.outlierTroubles.Load(); found != nil {
		all.Troubles = append(all.Troubles, *found...)
	}
	return all
}

// findOutliers searches for outliers again if the rows have grown by a tenth or were replaced.
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
		if o.ColumnIndex < len(m.columnNames) { // otherwise the rows have no target
			found = append(found, data.SourceTrouble{Kind: data.TroubleOutlier,
				Text: fmt.Sprintf("column %q: %d of %d values are far from the others, such as %v, while the others "+
					"range from %.4g to %.4g: if this value means missing, add it to data.missing_values, "+
					"or set data.range",
					data.UTF8Text(m.columnNames[o.ColumnIndex]), o.OutlierCount, m.RowCount, float32(o.WorstOutlier),
					o.LowestInlier,
					o.HighestInlier)})
		}
	}
	m.outlierTroubles.Store(&found)
}

// rowsVersion identifies a version of the shared rows.
type rowsVersion struct {
	RowCount         int // number of raw rows that snapshots may use
	replacementCount int // number of times that all rows were replaced
}

// DiscardRows replaces all rows by raw. why is the reason.
func (m *SharedRows) DiscardRows(raw *RawRows, why string) {
	if m.RowCount > 0 {
		m.replacementCount++
		m.replacementReason = why
	}
	m.Raw, m.RowCount = raw, 0
}

// NewRawRows returns empty rows with the same settings as the rows of m.
func (m *SharedRows) NewRawRows() *RawRows {
	return &RawRows{StorageSettings: m.Raw.StorageSettings, FeatureCount: m.Raw.FeatureCount, HasTimes: m.Raw.HasTimes,
		keepsOnlyNewestRows: m.Raw.keepsOnlyNewestRows}
}

// SharedRowsCache contains the rows of a source by the options of the query. Rows that are no longer used can be
// garbage-collected.
type SharedRowsCache map[string]weak.Pointer[SharedRows]

// OpenTaskRows returns the rows for a query. It calls make if no caller uses these rows yet.
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

// TaskRows implements data.QueriedRows with shared rows, prepared for a task. Rows in memory are prepared once and
// copied. Rows in a file are prepared each time they are read.
type TaskRows struct {
	Shared                   *SharedRows
	query                    data.RowQuery
	lastVersion              rowsVersion      // version of the shared rows at the last snapshot
	preparedReplacementCount int              // replacement count of the shared rows at the last preparation
	preparedRowCount         int              // number of rows passed to the Preparer
	x, y                     []float32        // prepared rows, if they are in memory and there is a Preparer
	preparedFile             *preparedRowFile // prepared rows, if they are in a file
	lastSnapshotRowCount     int              // number of rows in the last snapshot, including dropped ones
	lastSnapshot             data.RowSnapshot // last snapshot
	replacementReason        string           // why the rows of the last snapshot were discarded; cleared once reported
	hasUpdatedReport         bool             // whether UpdateQualityReport has read data since the last snapshot
}

// Changed implements data.QueriedRows.
func (r *TaskRows) Changed() bool {
	return r.hasUpdatedReport || r.Shared.Maker.Changed() || r.Shared.Raw.Err() != nil ||
		r.lastVersion != r.Shared.rowsVersion
}

// QualityReport implements data.QualityReporter.
func (r *TaskRows) QualityReport() data.QualityReport { return r.Shared.QualityReport() }

// UpdateQualityReport implements data.QualityUpdater. The next snapshot returns an error of the source again.
func (r *TaskRows) UpdateQualityReport() {
	if r.Shared.Maker.Changed() {
		_ = r.Shared.Maker.AddNewRows(r.Shared)
		r.hasUpdatedReport = true
	}
}

// Snapshot implements data.QueriedRows.
func (r *TaskRows) Snapshot() (data.RowSnapshot, error) {
	err := r.Shared.Maker.AddNewRows(r.Shared)
	if err == nil {
		r.Shared.findOutliers()
	}
	before := r.lastVersion
	r.lastVersion, r.hasUpdatedReport = r.Shared.rowsVersion, false
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
		r.lastVersion = before // try again at the next call, because the rows may be accepted then
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

// samples returns the prepared rows.
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

// prepareNewRows prepares the new rows for the task. It returns an error if the Preparer rejects them.
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
		// The result is discarded: this call only checks the labels. preparedRowFile prepares the rows when they are
		// read.
		if err := r.query.Preparer.PrepareSamples(learner.NewSamples(n, b.X, b.Y), at == 0); err != nil {
			return err
		}
	}
	r.preparedRowCount = to
	return nil
}

// maxRowsPerPrepare is the number of rows of a file that are prepared at a time.
const maxRowsPerPrepare = 1024
