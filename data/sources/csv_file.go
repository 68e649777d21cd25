package sources

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/spec"
)

func checkCSVConfig(c *data.Config, problems *spec.ProblemList, section string) {
	problems.Require(c.CSVPath != "", section+".csv", "no file is set: set the path of a CSV file with named columns")
	problems.Require(c.LinesPath == "" && len(c.Command) == 0 && c.LineFormat == "", section+".source",
		"is csv, but lines, command and format are not valid for csv: remove them")
	rejectTopicKeys(c, problems, section)
	problems.AddError(section+".delimiter", checkDialect(c.Delimiter, c.DecimalSeparator))
	problems.Require(c.SkipRows >= 0, section+".skip_rows", "invalid value %d: must not be negative", c.SkipRows)
	if mayMatchManyFiles(c.CSVPath) {
		_, err := filepath.Match(c.CSVPath, "")
		problems.AddError(section+".csv", err)
	}
	_, err := newTimeFormat(c.TimeFormat, c.TimeZone)
	problems.AddError(section+".time_format", err)
	problems.Require(c.MissingValuePolicy != grid.FillLast || c.TimeColumn != "", section+".time",
		"is empty, but missing: last requires the time of each row: set time to the name of its column")
	problems.Require(len(c.UnitByInput) == 0 || c.TimeColumn != "", section+".time",
		"is empty, but units requires the time of each row: set time to the name of its column")
	problems.Require(c.ShareCount >= 0, section+".shares", "invalid value %d: must not be negative", c.ShareCount)
	problems.Require(c.ShareIndex >= 0 && c.ShareIndex < max(c.ShareCount, 1), section+".share",
		"invalid value %d: must be between 0 and shares - 1 (shares is %d)",
		c.ShareIndex, c.ShareCount)
}

func csvPathByConfigKey(c *data.Config) map[string]string { return map[string]string{"csv": c.CSVPath} }

func openCSV(c *data.Config) (data.Source, error) {
	d, err := dialectFromConfig(c)
	filter := RowFilter{RequiredTextByColumn: c.RequiredTextByColumn, ShareIndex: c.ShareIndex,
		ShareCount: c.ShareCount, TimeColumn: c.TimeColumn, dialect: d, missingFill: c.FillRule(),
		deviceInputs: c.DeviceInputs()}
	return &csvFile{path: c.CSVPath, filter: filter, hasUnits: len(c.UnitByInput) > 0,
		maxUnusableShare: c.UnusableShareLimit(),
		rowStorage:       rows.StorageSettingsFromConfig(c),
		now:              time.Now}, err
}

// csvFile is a source that reads CSV files with named columns, to which other programs may append.
type csvFile struct {
	path             string
	filter           RowFilter
	hasUnits         bool    // whether the configuration contains units of inputs
	maxUnusableShare float64 // maximum share of unusable rows
	rowStorage       rows.StorageSettings
	sharedRowsByKey  rows.SharedRowsCache
	now              func() time.Time
}

// OpenRows implements data.Source. Lines are readings only if the file has a time column. Otherwise each line is a
// finished row, and its columns are the columns of the task.
func (f *csvFile) OpenRows(w data.RowQuery) data.QueriedRows {
	if w.Recipe == nil && f.hasUnits {
		return unreadableRows{errors.New("data.units requires a task with inputs, because the columns of this task " +
			"have no units: remove data.units")}
	}
	return f.sharedRowsByKey.OpenTaskRows(w, func() *rows.SharedRows {
		follows := fileFollower{path: f.path, now: f.now}
		if f.filter.TimeColumn != "" {
			follows.parseFirstRowTime = f.readFirstRowTime
		}
		if w.Recipe != nil && f.filter.TimeColumn != "" {
			feed := &csvReadingFeed{csvFile: f, inputs: w.Recipe.Inputs, neededInputs: w.Inputs(),
				fileFollower: follows}
			return rows.NewRowsFromReadings(feed, w, f.valueRules(), f.rowStorage, func() error { return nil })
		}
		c := &csvRowMaker{csvFile: f, query: w, fileFollower: follows,
			targetFilter: rows.TargetFilter{LabelSet: w.Labels}}
		return &rows.SharedRows{Maker: c, Name: f.path,
			Raw: &rows.RawRows{StorageSettings: f.rowStorage, FeatureCount: len(w.Features),
				HasTimes: f.filter.TimeColumn != ""}}
	})
}

// valueRules returns the rules for the readings of the file.
func (f *csvFile) valueRules() rows.ValueRules {
	return rows.ValueRules{MissingFill: f.filter.missingFill, MissingValues: f.filter.dialect.missingValues,
		DeviceInputs: f.filter.deviceInputs, MaxWrongShare: f.maxUnusableShare, Now: f.now}
}

// readFirstRowTime returns the time of the first row of a text. found is false if the text has no row. If the header
// has no time column, readFirstRowTime returns the minimum time, because such a text cannot continue another text.
func (f *csvFile) readFirstRowTime(text io.Reader) (at int64, found bool) {
	c := f.filter.dialect.newRecordReader(text, nil)
	c.forbidsAddedColumns = true // added columns do not affect the first row
	header, err := c.readHeader(f.path)
	if err != nil {
		return 0, false
	}
	column := slices.Index(header, f.filter.TimeColumn)
	if column < 0 {
		return math.MinInt64, true
	}
	for {
		record, err := c.Read()
		if bad := (*csvLineError)(nil); errors.As(err, &bad) {
			continue
		}
		if err != nil {
			return 0, false
		}
		if at, err := f.filter.dialect.timeFormat.parseTime(strings.TrimSpace(record[column])); err == nil {
			return at, true
		}
	}
}

// Close implements data.Source. No file is open between two calls.
func (*csvFile) Close() error { return nil }

// Probe implements data.Source.
func (f *csvFile) Probe() (err error) {
	paths, err := expandPath(f.path)
	if err != nil {
		return err
	}
	r, err := OpenTextFile(paths[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if n, err := io.ReadFull(r, make([]byte, 1)); n == 0 && errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is empty", paths[0])
	} else if err != nil {
		return fmt.Errorf("%s: %w", paths[0], err)
	}
	return nil
}

// csvRowMaker makes rows from the lines of CSV files. A failed call of AddNewRows changes only lastStamps.
type csvRowMaker struct {
	*csvFile
	fileFollower
	data.AtomicQualityReport
	query        data.RowQuery
	outlierLines map[uint64]bool   // sequence numbers of the lines whose times are outliers
	targetFilter rows.TargetFilter // filter at the start of a pass
	rereadLimit  rows.RereadLimit
}

// QualityReport implements data.QualityReporter.
func (c *csvRowMaker) QualityReport() data.QualityReport {
	all := c.AtomicQualityReport.QualityReport()
	all.AddUnusedValueTroubles(nil)
	return all
}

// Changed implements rows.RowMaker.
func (c *csvRowMaker) Changed() bool { return c.haveFilesChanged() }

// NoRowsError implements rows.RowMaker.
func (c *csvRowMaker) NoRowsError(renewed string) error {
	err := noRowSelectedError(c.csvFile.path, c.progress.rows)
	if slices.ContainsFunc(c.progress.files, func(p readPosition) bool { return p.hasUnreadUnterminatedLine }) {
		err.Problem += ", and the last line of the file has no line break yet"
	}
	if renewed != "" {
		err.Problem += "; " + renewed
	}
	return err
}

// AddNewRows implements rows.RowMaker. It reads the data added since the last call. It reads all data again if old data
// may have changed or if some lines have turned out to be invalid.
func (c *csvRowMaker) AddNewRows(m *rows.SharedRows) error {
	lost := m.Raw.Err()
	if !c.updateStamps() && lost == nil && !rows.NeedsReread(c.progress.order, &c.progress.targetFilter) {
		return nil
	}
	before := c.progress
	into, anew := m.Raw, ""
	if lost != nil {
		c.progress, into, anew = readProgress{}, m.NewRawRows(), lost.Error()
	}
	var to readProgress
	for again := true; again; {
		var err error
		b := &rowBatch[float32]{}
		to, err = c.readNewData(func(why string) {
			if into == m.Raw {
				into.Truncate(m.RowCount)
			} else {
				into.Truncate(0)
			}
			b.x, b.y, b.times = b.x[:0], b.y[:0], b.times[:0]
			into, anew, c.outlierLines = m.NewRawRows(), why, nil
		}, func(text *countingReader, at *readPosition, y *csvReadCounts) error {
			return c.parseRows(text, at, y, b, into)
		})
		if err == nil && to.order != nil {
			to.order.MarkFutureTailAsOutliers()
		}
		if again = err == nil && rows.NeedsReread(to.order,
			&to.targetFilter) && c.rereadLimit.AllowReread(to.rows); again {
			if into != m.Raw {
				into.Truncate(0)
			}
			into, anew = m.NewRawRows(), "some of its lines turned out to be invalid"
			if c.progress = (readProgress{}); to.order != nil {
				c.outlierLines = to.order.Outliers
			}
			c.targetFilter = to.targetFilter.FilterForNextPass()
			continue
		}
		c.SetQualityReport(to.qualityReport(c.query.Columns(), c.filter.TimeColumn))
		if err == nil {
			err = to.checkUnusableShare(c.maxUnusableShare)
		}
		if err == nil {
			err = into.Flush()
		}
		if err != nil {
			if into == m.Raw {
				into.Truncate(m.RowCount)
			} else {
				into.Truncate(0)
			}
			c.progress = before
			return err
		}
	}
	if into != m.Raw {
		if lost == nil && into.StartsWith(m.Raw, m.RowCount) {
			m.Raw = into
		} else {
			m.DiscardRows(into, fmt.Sprintf("%s: %s; all rows of the file are read again", c.csvFile.path, anew))
		}
	}
	c.progress, m.RowCount = to, into.Len()
	return nil
}

// batchRows is the number of rows that are passed to the shared rows at a time.
const batchRows = 512

// parseRows reads the rows of a text.
func (c *csvRowMaker) parseRows(text *countingReader, at *readPosition, y *csvReadCounts, b *rowBatch[float32],
	into *rows.RawRows) error {
	r := c.filter.dialect.newRecordReader(text, at)
	if y.columnCounts == nil {
		y.targetFilter = c.targetFilter
	}
	y.allocateColumnCounts(len(c.query.Columns()))
	if y.order == nil && c.filter.TimeColumn != "" {
		y.order = rows.NewTimeOrderCheck(0, c.csvFile.now(), c.outlierLines)
	}
	if y.order != nil {
		y.order.SetCurrentTime(c.csvFile.now())
	}
	b.csvReadCounts = *y
	take := func() error {
		err := into.Add(b.x, b.y, b.times)
		b.x, b.y, b.times = b.x[:0], b.y[:0], b.times[:0]
		return err
	}
	err := b.forEachRow(r, at, func(header []string) (*columnMapping, error) {
		return newColumnMapping(at.stamp.path, header, c.query.Features, c.query.Target, c.filter)
	}, func(record []string, line int) error {
		if err := b.addRow(at.table, record, line, at.sequenceNumber(line)); err != nil || len(b.y) < batchRows {
			return err
		}
		return take()
	}, func(bad *data.FileError) { // the line is counted under the time column, like a line with an invalid time
		b.columnCounts[len(b.columnCounts)-1].countRejectedCell(rejectedCell{bad.File, bad.Line, bad.Problem,
			grid.ReasonMalformed})
	})
	if bad := (*data.FileError)(nil); at.table == nil && c.query.Recipe != nil && errors.As(err, &bad) {
		bad.Problem += "; if the lines of the file are readings, set data.time to the name of the time column"
	}
	if err == nil {
		err = take()
	}
	*y = b.csvReadCounts
	return err
}
