package data

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

func checkCSV(c *Config, problems *spec.ProblemList, section string) {
	problems.Require(c.CSV != "", section+".csv", "is empty; want a CSV file with named columns")
	problems.Require(c.Lines == "" && len(c.Command) == 0 && c.Format == "", section+".source",
		"is csv, with which lines, command and format do not go: remove them")
	problems.AddError(section+".delimiter", checkDialect(c.Delimiter, c.Decimal))
	problems.Require(c.SkipRows >= 0, section+".skip_rows", "must not be negative, is %d", c.SkipRows)
	if matchesMany(c.CSV) {
		_, err := filepath.Match(c.CSV, "")
		problems.AddError(section+".csv", err)
	}
	_, err := newTimeFormat(c.TimeFormat, c.TimeZone)
	problems.AddError(section+".time_format", err)
	problems.Require(c.Missing != grid.FillLast || c.Time != "", section+".time",
		"is empty, and missing: last needs the time of a row: name its column")
	problems.Require(c.Shares >= 0, section+".shares", "must not be negative, is %d", c.Shares)
	problems.Require(c.Share >= 0 && c.Share < max(c.Shares, 1), section+".share",
		"must be 0 to shares - 1, is %d of %d",
		c.Share, c.Shares)
}

func filesOfCSV(c *Config) map[string]string { return map[string]string{"csv": c.CSV} }

func openCSV(c *Config) (Source, error) {
	d, err := dialectOf(c)
	filter := RowFilter{Where: c.Where, Share: c.Share, Shares: c.Shares, Time: c.Time, dialect: d, missing: c.fill(),
		ranges: c.Range}
	return &csvFile{path: c.CSV, filter: filter, maxUnusableShare: c.maxBad(), room: c.room(), now: time.Now}, err
}

// csvFile is a CSV file with named columns, which others may append to.
type csvFile struct {
	path             string
	filter           RowFilter
	maxUnusableShare float64 // of rows that cannot be used: their share
	room             rowStorage
	openRows         sharedRowsByKey
	now              func() time.Time
}

// Open implements Source. Readings have a time: without a column for it, lines are rows that somebody has made, whose
// columns have the names of the task's.
func (f *csvFile) Open(w RowQuery) Rows {
	return f.openRows.open(w, func() *sharedRows {
		follows := fileFollower{path: f.path, now: f.now}
		if f.filter.Time != "" {
			follows.firstRowTime = f.firstTime
		}
		if w.Recipe != nil && f.filter.Time != "" {
			feed := &csvFeed{csvFile: f, inputs: w.Recipe.Inputs, needed: w.inputs(), fileFollower: follows}
			return newGridRows(feed, w, f.rules(), f.room, func() error { return nil })
		}
		c := &csvRowMaker{csvFile: f, want: w, fileFollower: follows, labels: targetFilter{LabelSet: w.Labels}}
		return &sharedRows{rowMaker: c, name: f.path,
			raw: &rawRows{rowStorage: f.room, features: len(w.Features), timed: f.filter.Time != ""}}
	})
}

// rules returns the rules for the file's readings.
func (f *csvFile) rules() valueRules {
	return valueRules{f.filter.missing, f.filter.dialect.missingValues, f.filter.ranges, f.maxUnusableShare, f.now}
}

// firstTime returns the time of the first row of a text. found is false if the text has no row. If the header has no
// time column, firstTime returns the minimum time: such a text cannot continue another one.
func (f *csvFile) firstTime(text io.Reader) (at int64, found bool) {
	c := f.filter.dialect.reader(text, nil)
	c.noAddedColumns = true // the first lines are sufficient
	header, err := c.header(f.path)
	if err != nil {
		return 0, false
	}
	column := slices.Index(header, f.filter.Time)
	if column < 0 {
		return math.MinInt64, true
	}
	for {
		record, err := c.Read()
		if bad := (*lineError)(nil); errors.As(err, &bad) {
			continue
		}
		if err != nil {
			return 0, false
		}
		if at, err := f.filter.dialect.time.parse(strings.TrimSpace(record[column])); err == nil {
			return at, true
		}
	}
}

// Close implements Source. No file is open between two calls.
func (*csvFile) Close() error { return nil }

// Probe implements Source.
func (f *csvFile) Probe() (err error) {
	paths, err := expandPath(f.path)
	if err != nil {
		return err
	}
	r, err := OpenFile(paths[0])
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

// csvRowMaker makes rows of the lines of a CSV file. A call of make that fails changes nothing but looked.
type csvRowMaker struct {
	*csvFile
	fileFollower
	latestReport
	want     RowQuery
	outliers map[uint64]bool // numbers of the lines whose times are outliers
	labels   targetFilter    // at the beginning of a pass
	reads    rereadLimit
}

// Report implements Reporter.
func (c *csvRowMaker) Report() Report {
	all := c.latestReport.Report()
	all.addUnusedTroubles(nil)
	return all
}

// changed implements rowMaker.
func (c *csvRowMaker) changed() bool { return c.fileFollower.changed() }

// noRowsError implements rowMaker.
func (c *csvRowMaker) noRowsError(renewed string) error {
	err := noneSelected(c.csvFile.path, c.read.rows)
	if slices.ContainsFunc(c.read.files, func(p readPosition) bool { return p.lastLineOpen }) {
		err.Problem += ", and its last line has no line break yet"
	}
	if renewed != "" {
		err.Problem += "; " + renewed
	}
	return err
}

// addNewRows implements rowMaker. It reads the data that was added since the last call. It reads everything again if
// data that was read before may have changed, or if some lines have turned out to be invalid.
func (c *csvRowMaker) addNewRows(m *sharedRows) error {
	lost := m.raw.err()
	if !c.updateStamps() && lost == nil && !needsReread(c.read.order, &c.read.labels) {
		return nil
	}
	before := c.read
	into, anew := m.raw, ""
	if lost != nil {
		c.read, into, anew = readProgress{}, m.newRawRows(), lost.Error()
	}
	var to readProgress
	for again := true; again; {
		var err error
		b := &rowBatch[float32]{}
		to, err = c.follow(func(why string) {
			if into == m.raw {
				into.truncate(m.rows)
			} else {
				into.truncate(0)
			}
			b.x, b.y, b.times = b.x[:0], b.y[:0], b.times[:0]
			into, anew, c.outliers = m.newRawRows(), why, nil
		}, func(text *countingReader, at *readPosition, y *readState) error { return c.parse(text, at, y, b, into) })
		if err == nil && to.order != nil {
			to.order.checkTail()
		}
		if again = err == nil && needsReread(to.order, &to.labels) && c.reads.allow(to.rows); again {
			if into != m.raw {
				into.truncate(0)
			}
			into, anew = m.newRawRows(), "some of its lines turned out to be invalid"
			if c.read = (readProgress{}); to.order != nil {
				c.outliers = to.order.outliers
			}
			c.labels = to.labels.nextPass()
			continue
		}
		c.setReport(to.report(c.want.columns(), c.filter.Time))
		if err == nil {
			err = to.check(c.maxUnusableShare)
		}
		if err == nil {
			err = into.flush()
		}
		if err != nil {
			if into == m.raw {
				into.truncate(m.rows)
			} else {
				into.truncate(0)
			}
			c.read = before
			return err
		}
	}
	if into != m.raw {
		if lost == nil && into.startsWith(m.raw, m.rows) {
			m.raw = into
		} else {
			m.discardRows(into, fmt.Sprintf("%s: %s; its rows are read again", c.csvFile.path, anew))
		}
	}
	c.read, m.rows = to, into.len()
	return nil
}

// needsReread reports whether another pass over the source would use different lines, because it found outliers or
// because the wrong number was accepted for the second class. order is nil if the lines have no time.
func needsReread(order *timeOrder, labels *targetFilter) bool {
	return order != nil && order.foundOutliers || labels.acceptsMinority()
}

// rereadLimit limits the number of rereads because of lines that turned out to be invalid. Otherwise a sensor whose
// clock is always ahead could cause a reread for each of its lines.
type rereadLimit struct {
	rows int // number of rows at the last reread
	n    int // number of rereads
}

// allow reports whether a source with this number of rows may be read again, and counts the reread if so. After more
// than maxRereads rereads, at least an eighth of its rows must be new.
func (r *rereadLimit) allow(rows int) bool {
	if r.n > maxRereads && rows-r.rows < rows/8 {
		return false
	}
	r.n, r.rows = r.n+1, rows
	return true
}

// maxRereads is the number of rereads after which rereadLimit restricts further ones.
const maxRereads = 16

// batchRows is how many rows of a file are handed on at a time.
const batchRows = 512

// parse reads the rows of a text.
func (c *csvRowMaker) parse(text *countingReader, at *readPosition, y *readState, b *rowBatch[float32],
	into *rawRows) error {
	r := c.filter.dialect.reader(text, at)
	if y.columnCounts == nil {
		y.labels = c.labels
	}
	y.begin(len(c.want.columns()))
	if y.order == nil && c.filter.Time != "" {
		y.order = newTimeOrder(0, c.csvFile.now(), c.outliers)
	}
	if y.order != nil {
		y.order.setClock(c.csvFile.now())
	}
	b.readState = *y
	take := func() error {
		err := into.add(b.x, b.y, b.times)
		b.x, b.y, b.times = b.x[:0], b.y[:0], b.times[:0]
		return err
	}
	err := b.eachRow(r, at, func(header []string) (*columnTable, error) {
		return newTable(at.stamp.path, header, c.want.Features, c.want.Target, c.filter)
	}, func(record []string, line int) error {
		if err := b.add(at.table, record, line, at.number(line)); err != nil || len(b.y) < batchRows {
			return err
		}
		return take()
	}, func(bad *FileError) { // counted beside the columns, like a bad time
		b.columnCounts[len(b.columnCounts)-1].countRejected(rejectedCell{bad.File, bad.Line, bad.Problem,
			grid.Malformed})
	})
	if bad := (*FileError)(nil); at.table == nil && c.want.Recipe != nil && errors.As(err, &bad) {
		bad.Problem += "; or if its lines are readings: name the column of their time (data.time)"
	}
	if err == nil {
		err = take()
	}
	*y = b.readState
	return err
}
