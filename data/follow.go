package data

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

func checkCSV(c *Config, problems *spec.Check, section string) {
	problems.Need(c.CSV != "", section+".csv", "is empty; want a CSV file with named columns")
	problems.Need(c.Lines == "" && len(c.Command) == 0 && c.Format == "", section+".source",
		"is csv, with which lines, command and format do not go: remove them")
	problems.Valid(section+".delimiter", checkDialect(c.Delimiter, c.Decimal))
	_, err := newTimeFormat(c.TimeFormat, c.TimeZone)
	problems.Valid(section+".time_format", err)
	problems.Need(c.Missing != grid.Last || c.Time != "", section+".time",
		"is empty, and missing: last needs the time of a row: name its column")
	problems.Need(c.Shares >= 0, section+".shares", "must not be negative, is %d", c.Shares)
	problems.Need(c.Share >= 0 && c.Share < max(c.Shares, 1), section+".share", "must be 0 to shares - 1, is %d of %d",
		c.Share, c.Shares)
}

func filesOfCSV(c *Config) map[string]string { return map[string]string{"csv": c.CSV} }

func openCSV(c *Config) (Source, error) {
	d, err := dialectOf(c)
	filter := Filter{Where: c.Where, Share: c.Share, Shares: c.Shares, Time: c.Time, dialect: d, missing: c.fill()}
	return &csvFile{path: c.CSV, filter: filter, most: c.maxBad(), now: time.Now}, err
}

// csvFile is a CSV file with named columns, which others may append to.
type csvFile struct {
	path   string
	filter Filter
	most   float64 // of rows that cannot be used: their share
	now    func() time.Time
}

// Open implements Source. Readings have a time: without a column for it, lines are rows that somebody has made, whose
// columns have the names of the task's.
func (f *csvFile) Open(w Want) Rows {
	if w.Recipe != nil && f.filter.Time != "" {
		feed := &csvFeed{csvFile: f, inputs: w.Recipe.Inputs, follower: follower{path: f.path, now: f.now}}
		return newGridRows(feed, w, f.filter.missing, func() error { return nil })
	}
	return &csvRows{csvFile: f, want: w, follower: follower{path: f.path, now: f.now}}
}

// Close implements Source. No file is open between two calls.
func (*csvFile) Close() error { return nil }

// Probe implements Source.
func (f *csvFile) Probe() (err error) {
	r, err := OpenFile(f.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if n, err := io.ReadFull(r, make([]byte, 1)); n == 0 && errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is empty", f.path)
	} else if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

// csvRows are the rows of a CSV file. A snapshot that fails changes nothing but looked.
type csvRows struct {
	*csvFile
	follower
	said
	want    Want
	table   *table    // of the header
	x, y    []float32 // the rows so far; views share their memory, and it is never changed
	times   []int64
	view    View   // the last one
	renewed string // why the rows of the last view were given up; until it is told
}

// Changed implements Rows.
func (r *csvRows) Changed() bool { return r.changed() }

// Snapshot implements Rows.
func (r *csvRows) Snapshot() (View, error) {
	if r.look() {
		if err := r.more(); err != nil {
			return View{}, err
		}
	}
	if len(r.y) == 0 {
		err := noneSelected(r.csvFile.path, r.read.rows)
		if r.read.offset < r.looked.size && !compressed(r.csvFile.path) {
			err.Problem += ", and its last line has no line break yet"
		}
		if r.renewed != "" {
			err.Problem += "; " + r.renewed
		}
		return View{}, err
	}
	if r.renewed != "" || r.view.Rows == nil || r.view.Rows.Len() != len(r.y) {
		r.view = View{Version: r.view.Version + 1, Rows: learner.NewSamples(len(r.want.Features), r.x, r.y),
			Times: r.times, Renewed: r.renewed}
		r.renewed = ""
	}
	return r.view, nil
}

// more reads what has come since the last time, or everything if what was read then may have changed.
func (r *csvRows) more() error {
	t, b := r.table, &batch[float32]{}
	anew := ""
	first := r.read.offset == 0 || len(r.y) == 0
	to, err := r.follow(func(why string) { anew, first = why, true }, func(text *counter, from place) (tally, error) {
		c := r.filter.dialect.reader(text, from.lines)
		b.tally = from.begin(len(r.want.Features) + 1)
		if from.offset == 0 {
			var err error
			if t, err = readHeader(c, r.csvFile.path, r.want.Features, r.want.Target, r.filter); err != nil {
				if bad := (*Error)(nil); r.want.Recipe != nil && errors.As(err, &bad) {
					bad.Problem += "; or if its lines are readings: name the column of their time (data.time)"
				}
				return b.tally, err
			}
		}
		err := b.read(c, t, from.lines)
		return b.tally, err
	})
	if t != nil {
		r.tell(b.report(r.csvFile.path, t.names, r.filter.Time))
	}
	if err == nil {
		err = b.check(r.most)
	}
	if err != nil {
		return err
	}
	if s := learner.NewSamples(len(r.want.Features), b.x, b.y); r.want.Prepare != nil && s.Len() > 0 {
		if err := r.want.Prepare(s, first); err != nil {
			return fmt.Errorf("%s: %w", r.csvFile.path, err)
		}
	}
	r.read, r.table = to, t
	if !first {
		r.x, r.y, r.times = append(r.x, b.x...), append(r.y, b.y...), append(r.times, b.times...)
		return nil
	}
	if !starts(b.x, r.x) || !starts(b.y, r.y) || !starts(b.times, r.times) {
		r.renewed = fmt.Sprintf("%s: %s; its rows are read anew, up to line %d", r.csvFile.path, anew, to.lines)
	}
	r.x, r.y, r.times = b.x, b.y, b.times
	return nil
}

// starts reports whether v starts with these elements.
func starts[E comparable](v, with []E) bool {
	return len(v) >= len(with) && slices.Equal(v[:len(with)], with)
}
